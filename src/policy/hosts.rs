//! URLs and host patterns: parses the target of a URL strictly, and checks it against a list of hosts. Pure: no name
//! resolution.

use std::fmt;

/// One entry of `hosts`: `docs.rs`, `*.rust-lang.org`, `docs.rs:8443`, `http://intranet.example`.
///
/// Without scheme and port it means https on port 443, except that `localhost` then means any scheme and port, since it
/// is rarely served over https.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    secure: bool,
    port: u16,
    /// Whether it matches any name below `name`.
    below: bool,
    /// Empty together with `below` for `*`.
    name: String,
}

/// The target of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTarget {
    /// Whether the scheme is `https`; otherwise it is `http`.
    pub secure: bool,
    /// Lower case, without a trailing dot.
    pub host: String,
    /// The port in the URL, or the standard one of the scheme.
    pub port: u16,
}

/// Why a URL is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlRefused {
    /// It has more than 2,048 bytes.
    TooLong,
    /// It has a blank, a control character, an invisible character or a backslash.
    Characters,
    /// It has no `://`.
    Shape,
    /// The scheme is neither `https` nor `http`, or it is `http` and no entry lists the host with that scheme.
    Scheme,
    /// There is an `@` before the path.
    UserPart,
    /// The host name is too long, or a label of it is empty, too long or has other characters.
    Host,
    /// The host is an IP address, or would be read as one.
    Address,
    /// The host name is not ASCII.
    NotAscii,
    /// The port is not a number from 1 to 65535.
    Port,
    /// The URL is valid, but no entry lists its host.
    NotListed,
}

impl UrlRefused {
    /// The last part of the reason code `url_refused:…`.
    pub fn as_str(self) -> &'static str {
        match self {
            UrlRefused::TooLong => "length",
            UrlRefused::Characters => "characters",
            UrlRefused::Shape => "shape",
            UrlRefused::Scheme => "scheme",
            UrlRefused::UserPart => "user_part",
            UrlRefused::Host => "host",
            UrlRefused::Address => "address",
            UrlRefused::NotAscii => "not_ascii",
            UrlRefused::Port => "port",
            UrlRefused::NotListed => "not_listed",
        }
    }
}

impl fmt::Display for UrlRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UrlRefused::TooLong => "the URL is longer than 2,048 bytes",
            UrlRefused::Characters => "the URL contains a blank, a control character or a backslash",
            UrlRefused::Shape => "the URL is not of the form https://HOST/PATH",
            UrlRefused::Scheme => "only https is allowed, and http for the hosts that a rule lists with `http://`",
            UrlRefused::UserPart => "the URL contains a user part",
            UrlRefused::Host => "the host name has characters other than letters, digits, dashes and dots, or an empty or overlong label",
            UrlRefused::Address => "the host is an address, not a name",
            UrlRefused::NotAscii => "the host name is not ASCII",
            UrlRefused::Port => "the port is not a number from 1 to 65535",
            UrlRefused::NotListed => "no rule lists the host",
        })
    }
}

/// The longest accepted URL, in bytes.
const MAX_URL: usize = 2048;

/// Parses the target of `url` by a strict grammar: ASCII host names only, no IP address, no user info, http or https.
///
/// # Errors
/// The first problem.
pub fn target(url: &str) -> Result<UrlTarget, UrlRefused> {
    if url.len() > MAX_URL {
        return Err(UrlRefused::TooLong);
    }
    if url
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || c == '\\' || super::name_folding::is_invisible(c))
    {
        return Err(UrlRefused::Characters);
    }
    let (scheme, rest) = url.split_once("://").ok_or(UrlRefused::Shape)?;
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(UrlRefused::Scheme),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest.get(..end).unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlRefused::UserPart);
    }
    let (name, port) = split_port(authority, secure)?;
    Ok(UrlTarget {
        secure,
        host: host_name(name)?,
        port,
    })
}

fn split_port(authority: &str, secure: bool) -> Result<(&str, u16), UrlRefused> {
    let standard = if secure { 443 } else { 80 };
    if authority.starts_with('[') {
        return Err(UrlRefused::Address);
    }
    match authority.split_once(':') {
        None => Ok((authority, standard)),
        Some((name, digits)) => {
            let plain = !digits.is_empty() && digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit());
            let port = digits.parse::<u16>().ok().filter(|port| plain && *port > 0);
            Ok((name, port.ok_or(UrlRefused::Port)?))
        }
    }
}

/// The name in lower case without a trailing dot.
fn host_name(name: &str) -> Result<String, UrlRefused> {
    if !name.is_ascii() {
        return Err(UrlRefused::NotAscii);
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let label_ok = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label_ok) {
        return Err(UrlRefused::Host);
    }
    // URL parsers and resolvers read a last label of digits, or of `0x…`, as an IPv4 address.
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last
        .strip_prefix("0x")
        .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if hex || last.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UrlRefused::Address);
    }
    Ok(name)
}

impl HostPattern {
    /// Parses a host pattern from a policy file.
    ///
    /// # Errors
    /// The problem, as a phrase for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (secure, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "scheme `{scheme}` is not supported; give a host such as `docs.rs`"
                ));
            }
        };
        if rest.contains('/') {
            return Err("a host has no path; write only the name, such as `docs.rs`".to_owned());
        }
        let (name, port) = split_port(rest, secure).map_err(|why| why.to_string())?;
        if name == "*" {
            return Ok(Self {
                secure,
                port,
                ..Self::everywhere()
            });
        }
        let (below, name) = match name.strip_prefix("*.") {
            Some(suffix) => (true, suffix),
            None => (false, name),
        };
        if name.contains('*') {
            return Err("`*` may only replace the whole first label, as in `*.example.org`".to_owned());
        }
        let name = host_name(name).map_err(|why| match why {
            UrlRefused::NotAscii => "write the name in its ASCII form (`xn--…`)".to_owned(),
            UrlRefused::Address => "addresses cannot be listed; write a name".to_owned(),
            why => why.to_string(),
        })?;
        if below && !name.contains('.') {
            return Err(format!(
                "`*.{name}` is a whole top-level domain; name the hosts below it"
            ));
        }
        Ok(Self {
            secure,
            port,
            below,
            name,
        })
    }

    /// Every host, over https on its standard port.
    pub fn everywhere() -> Self {
        Self {
            secure: true,
            port: 443,
            below: true,
            name: String::new(),
        }
    }

    /// Whether a target matches: scheme, port, and the name exactly or as a subdomain.
    pub fn fits(&self, target: &UrlTarget) -> bool {
        if self.is_local() && target.host == self.name {
            return true;
        }
        let name = if self.below {
            self.name.is_empty()
                || target
                    .host
                    .strip_suffix(&self.name)
                    .is_some_and(|left| left.len() > 1 && left.ends_with('.'))
        } else {
            target.host == self.name
        };
        name && self.secure == target.secure && self.port == target.port
    }

    fn is_local(&self) -> bool {
        self.name == "localhost" && !self.below && self.secure && self.port == 443
    }

    /// Whether a target's host matches, whatever its scheme and port; used for denials.
    pub fn touches(&self, target: &UrlTarget) -> bool {
        let any = UrlTarget {
            secure: self.secure,
            port: self.port,
            host: target.host.clone(),
        };
        self.fits(&any)
    }

    /// Whether everything that matches `other` matches here too.
    pub fn includes(&self, other: &HostPattern) -> bool {
        let name = match (self.below, other.below) {
            (false, true) => false,
            (false, false) => self.name == other.name,
            (true, true) if self.name == other.name => true,
            (true, _) => {
                self.name.is_empty()
                    || other
                        .name
                        .strip_suffix(&self.name)
                        .is_some_and(|left| left.ends_with('.'))
            }
        };
        name && self.secure == other.secure && self.port == other.port
    }

    /// Whether it matches every host.
    pub fn is_all(&self) -> bool {
        self.below && self.name.is_empty()
    }
}

/// As `hosts` and `network` list it.
impl fmt::Display for UrlTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, standard) = if self.secure { ("", 443) } else { ("http://", 80) };
        write!(f, "{scheme}{}", self.host)?;
        match self.port == standard {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.secure {
            f.write_str("http://")?;
        }
        match (self.below, self.name.as_str()) {
            (true, "") => f.write_str("*")?,
            (true, name) => write!(f, "*.{name}")?,
            (false, name) => f.write_str(name)?,
        }
        let standard = if self.secure { 443 } else { 80 };
        if self.port == standard {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

/// Whether `patterns` grant a host at a port over http or https: who only relays a connection does not see which.
pub fn grants_port(host: &str, port: u16, patterns: &[HostPattern]) -> bool {
    let granted = |scheme: &str| judge(&format!("{scheme}://{host}:{port}/"), patterns).is_ok();
    granted("https") || granted("http")
}

/// Whether `patterns` grant `url`; returns its target if they do.
///
/// # Errors
/// The problem with the URL, or [`UrlRefused::NotListed`]; [`UrlRefused::Scheme`] for an `http` URL if no entry
/// says `http`.
pub fn judge(url: &str, patterns: &[HostPattern]) -> Result<UrlTarget, UrlRefused> {
    let target = target(url)?;
    if patterns.iter().any(|pattern| pattern.fits(&target)) {
        return Ok(target);
    }
    if !target.secure && !patterns.iter().any(|pattern| !pattern.secure) {
        return Err(UrlRefused::Scheme);
    }
    Err(UrlRefused::NotListed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_granted_under_the_scheme_of_its_entry() {
        for (entry, port, granted) in [
            ("http://x.example:8080", 8080, true),
            ("x.example:8080", 8080, true),
            ("http://x.example", 80, true),
            ("x.example", 443, true),
            ("https://x.example:80", 80, true),
            ("http://x.example", 443, false),
            ("x.example", 80, false),
            ("http://x.example:8080", 8081, false),
        ] {
            let patterns = [HostPattern::parse(entry).unwrap()];
            assert_eq!(grants_port("x.example", port, &patterns), granted, "{entry} {port}");
            assert!(!grants_port("y.example", port, &patterns), "{entry} {port}");
        }
    }
}
