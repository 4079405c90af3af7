//! Parses the address of a remote repository: the URL that git gets, the host, and the project's name on a forge. Pure.

use super::DeliverTarget;
use crate::base::percent;
use crate::net::client::{checked_base, is_loopback};
use reqwest::Url;
use secrecy::SecretString;
use std::path::{Path, PathBuf};

/// A remote repository.
#[derive(Clone, Debug)]
pub struct RemoteAddress {
    /// The URL or path that git gets; never contains credentials.
    pub url: String,
    /// `USER:PASSWORD` from the address.
    pub credentials: Option<SecretString>,
    /// For `http` and `https`: scheme and authority, ending in `/`.
    pub origin: Option<String>,
    /// Name or address of the server; `None` for a directory.
    pub host: Option<String>,
    /// The path, for a directory of this machine.
    pub directory: Option<PathBuf>,
    /// `OWNER/NAME`, or `GROUP/…/NAME`.
    pub project: Option<String>,
}

impl RemoteAddress {
    /// Parses an address as git accepts it: `https`, `http`, `ssh`, `git` and `file` URLs, `[USER@]HOST:PATH`, or a
    /// directory. A relative directory is relative to `top`.
    ///
    /// # Errors
    /// A sentence that says what is wrong: another transport, which may run programs, or not an address.
    pub fn parse(text: &str, top: &Path) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('-') || text.chars().any(char::is_control) {
            return Err("it is not the address of a repository".to_owned());
        }
        if text.contains("://") {
            return Self::of_url(text);
        }
        if text.contains("::") {
            return Err("transports that run a program are not supported".to_owned());
        }
        if let Some((host, path)) = text.split_once(':').filter(|(host, _)| !host.contains('/')) {
            let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
            if name.is_empty() || name.starts_with('-') || path.is_empty() || path.starts_with('-') {
                return Err("it is not the address of a repository".to_owned());
            }
            return Ok(Self {
                url: text.to_owned(),
                credentials: None,
                origin: None,
                host: Some(name.to_ascii_lowercase()),
                directory: None,
                project: project(path),
            });
        }
        Ok(Self::of_directory(top.join(text)))
    }

    fn of_directory(path: PathBuf) -> Self {
        let url = path.to_string_lossy().into_owned();
        Self {
            project: project(&url).map(|project| last_two(&project)),
            url,
            credentials: None,
            origin: None,
            host: None,
            directory: Some(path),
        }
    }

    fn of_url(text: &str) -> Result<Self, String> {
        // The message must not repeat the text: it may hold a password.
        let mut url = Url::parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
        if url.scheme() == "file" {
            let path = url.to_file_path().map_err(|()| "it names no directory".to_owned())?;
            return Ok(Self::of_directory(path));
        }
        if !matches!(url.scheme(), "https" | "http" | "ssh" | "git") {
            return Err(format!(
                "the scheme `{}` is not supported: use https, http, ssh, git or file",
                url.scheme()
            ));
        }
        let host = url.host_str().filter(|host| !host.is_empty() && !host.starts_with('-'));
        let host = host.ok_or("it names no host")?.to_ascii_lowercase();
        let mut credentials = None;
        if matches!(url.scheme(), "https" | "http") {
            if let Some(password) = url.password() {
                let plain = |text: &str| String::from_utf8_lossy(&percent::decode(text)).into_owned();
                credentials = Some(SecretString::from(format!(
                    "{}:{}",
                    plain(url.username()),
                    plain(password)
                )));
            }
            // The user name stays in the URL: it tells a credential helper whose password is needed.
            if url.set_password(None).is_err() || (credentials.is_some() && url.set_username("").is_err()) {
                return Err("its credentials cannot be removed from the URL".to_owned());
            }
        } else if url.password().is_some() {
            return Err("it contains a password, which ssh does not accept".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("it must not contain `?` or `#`".to_owned());
        }
        let origin = matches!(url.scheme(), "https" | "http").then(|| {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{host}{port}/", url.scheme())
        });
        Ok(Self {
            project: project(url.path()),
            url: url.as_str().to_owned(),
            credentials,
            origin,
            host: Some(host),
            directory: None,
        })
    }

    /// Whether the connection is unencrypted: `http` to another machine.
    fn is_in_the_clear(&self) -> bool {
        let loopback = self.host.as_deref().is_some_and(is_loopback);
        self.origin
            .as_deref()
            .is_some_and(|origin| origin.starts_with("http://"))
            && !loopback
    }

    /// The address of another project on the same server.
    ///
    /// # Errors
    /// A sentence that says what is wrong: this address has no project, or the name is not valid.
    pub fn sibling(&self, other: &str) -> Result<Self, String> {
        let own = self.project.as_deref().ok_or("the address names no project")?;
        if project(other).as_deref() != Some(other) {
            return Err(format!("`{other}` is not a project: write OWNER/NAME"));
        }
        let at = self.url.rfind(own).ok_or("the address names no project")?;
        let mut url = self.url.clone();
        url.replace_range(at..at + own.len(), other);
        Ok(Self {
            directory: self.directory.is_some().then(|| PathBuf::from(&url)),
            url,
            project: Some(other.to_owned()),
            ..self.clone()
        })
    }

    /// Whether the server is the forge's public service.
    fn is_public(&self, target: DeliverTarget) -> bool {
        let host = self.host.as_deref();
        host.is_some_and(|host| target.public_hosts().contains(&host))
    }

    /// The remote as the forge names its project, and the base URL of the forge's API, to which the token is sent.
    /// `given` is that URL from a flag or the CI system's variable. `named_by_job`: only the target of a job names the
    /// remote. Lists of targets may come from outside, so none of their lines decides which server gets the token.
    ///
    /// # Errors
    /// A sentence that says what is wrong: the API's address is not a base URL or not derivable from the remote's, or
    /// the token would be sent to a server that only a job names, or unencrypted.
    pub fn of_forge(
        mut self,
        target: DeliverTarget,
        given: Option<&str>,
        named_by_job: bool,
    ) -> Result<(Self, String), String> {
        if given.is_none() && named_by_job && !self.is_public(target) {
            return Err(
                "the token is not sent to a server that only a job's target names: name the forge with --api-url"
                    .to_owned(),
            );
        }
        if !target.has_groups() {
            self.project = self.project.map(|project| last_two(&project));
        }
        let api = self.api(target, given)?;
        let is_clear = Self::of_url(&api).is_ok_and(|address| address.is_in_the_clear());
        if is_clear || (self.is_in_the_clear() && self.belongs_to(&api)) {
            return Err("the token would be sent unencrypted: the forge's address must begin with https://".to_owned());
        }
        Ok((self, api))
    }

    /// The base URL of the forge's API.
    fn api(&self, target: DeliverTarget, given: Option<&str>) -> Result<String, String> {
        if let Some(given) = given {
            return checked_base(given);
        }
        let host = self
            .host
            .as_deref()
            .ok_or("the remote is a directory: name the forge with --api-url")?;
        let origin = match &self.origin {
            Some(origin) => origin.trim_end_matches('/').to_owned(),
            None => format!("https://{host}"),
        };
        let path = match target {
            DeliverTarget::Github if self.is_public(target) => return checked_base("https://api.github.com"),
            DeliverTarget::Github => "api/v3",
            DeliverTarget::Gitlab => "api/v4",
            DeliverTarget::Forgejo => "api/v1",
            DeliverTarget::Branch | DeliverTarget::Push | DeliverTarget::Mbox => {
                return Err(format!("`{}` is not a forge", target.as_str()));
            }
        };
        checked_base(&format!("{origin}/{path}"))
    }

    /// Whether the token of the forge at `api` may be sent to this git server: only if the hosts are equal, or are
    /// `api.HOST` and `HOST`.
    pub fn belongs_to(&self, api: &str) -> bool {
        let api = Url::parse(api)
            .ok()
            .and_then(|url| url.host_str().map(str::to_ascii_lowercase));
        match (api, &self.host) {
            (Some(api), Some(host)) => api == *host || api.strip_prefix("api.").is_some_and(|rest| rest == host),
            _ => false,
        }
    }
}

/// The project in a path: at least two segments that are valid in a URL.
fn project(path: &str) -> Option<String> {
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+');
    let names: Vec<&str> = path.split('/').collect();
    let sound = |name: &&str| !name.is_empty() && *name != "." && *name != ".." && name.chars().all(plain);
    (names.len() >= 2 && names.iter().all(sound)).then(|| names.join("/"))
}

/// `OWNER/NAME` of a project, for forges without nested groups: preceding segments are the forge's own path prefix.
fn last_two(project: &str) -> String {
    let names: Vec<&str> = project.rsplitn(3, '/').take(2).collect();
    names.into_iter().rev().collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    #[test]
    fn addresses_as_git_takes_them() {
        let cases = [
            (
                "https://github.com/o/n.git",
                "https://github.com/o/n.git",
                Some("github.com"),
                Some("o/n"),
            ),
            (
                "https://github.com/o/n/",
                "https://github.com/o/n/",
                Some("github.com"),
                Some("o/n"),
            ),
            (
                "https://gitlab.com/g/s/n.git",
                "https://gitlab.com/g/s/n.git",
                Some("gitlab.com"),
                Some("g/s/n"),
            ),
            (
                "https://u:p%40ss@h.org/o/n",
                "https://h.org/o/n",
                Some("h.org"),
                Some("o/n"),
            ),
            ("https://u@h.org/o/n", "https://u@h.org/o/n", Some("h.org"), Some("o/n")),
            (
                "http://127.0.0.1:8080/o/n.git",
                "http://127.0.0.1:8080/o/n.git",
                Some("127.0.0.1"),
                Some("o/n"),
            ),
            (
                "ssh://git@h.org:22/o/n.git",
                "ssh://git@h.org:22/o/n.git",
                Some("h.org"),
                Some("o/n"),
            ),
            (
                "git@github.com:o/n.git",
                "git@github.com:o/n.git",
                Some("github.com"),
                Some("o/n"),
            ),
            ("git://h.org/o/n.git", "git://h.org/o/n.git", Some("h.org"), Some("o/n")),
            ("file:///srv/o/n.git", "/srv/o/n.git", None, Some("o/n")),
            ("../n.git", "/top/../n.git", None, None),
        ];
        for (text, url, host, project) in cases {
            let found = RemoteAddress::parse(text, Path::new("/top")).unwrap();
            assert_eq!((found.url.as_str(), found.host.as_deref()), (url, host), "{text}");
            if project.is_some() {
                assert_eq!(found.project.as_deref(), project, "{text}");
            }
        }
        let found = RemoteAddress::parse("https://u:p%40ss@h.org/o/n", Path::new("/")).unwrap();
        assert_eq!(found.credentials.unwrap().expose_secret(), "u:p@ss");
        for text in [
            "",
            "-oProxyCommand=x",
            "ext::sh -c x",
            "ssh://-oProxyCommand=x/o/n",
            "-x:y",
            "ftp://h/o/n",
            "https://h/o/n?x",
            "git@-x:o/n",
        ] {
            assert!(RemoteAddress::parse(text, Path::new("/")).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_goes_to_the_forge_it_is_of() {
        let remote = |text: &str| RemoteAddress::parse(text, Path::new("/")).unwrap();
        for (url, api, belongs) in [
            ("https://github.com/o/n", "https://api.github.com", true),
            ("https://evil.org/o/n", "https://api.github.com", false),
            ("https://h.org/o/n", "https://h.org/api/v4", true),
            ("https://a.h.org/o/n", "https://h.org/api/v4", false),
            ("http://127.0.0.1:1/o/n", "http://127.0.0.1:2", true),
        ] {
            assert_eq!(remote(url).belongs_to(api), belongs, "{url} {api}");
        }
        let api = |url: &str, target| remote(url).api(target, None).unwrap();
        assert_eq!(
            api("git@github.com:o/n", DeliverTarget::Github),
            "https://api.github.com"
        );
        assert_eq!(
            api("https://h.org:8/o/n", DeliverTarget::Github),
            "https://h.org:8/api/v3"
        );
        assert_eq!(api("git@h.org:o/n", DeliverTarget::Gitlab), "https://h.org/api/v4");
        assert_eq!(api("https://h.org/o/n", DeliverTarget::Forgejo), "https://h.org/api/v1");
        assert!(remote("http://h.org/o/n").is_in_the_clear());
        assert!(!remote("http://127.0.0.1/o/n").is_in_the_clear() && !remote("https://h.org/o/n").is_in_the_clear());
        assert_eq!(
            remote("https://h.org/o/n.git").sibling("up/n").unwrap().url,
            "https://h.org/up/n.git"
        );
        assert!(remote("https://h.org/o/n.git").sibling("../x").is_err());
    }

    #[test]
    fn a_token_is_sent_to_no_server_of_a_job_and_never_unencrypted() {
        let remote = |text: &str| RemoteAddress::parse(text, Path::new("/")).unwrap();
        for (url, target, given, named_by_job, sent) in [
            ("https://github.com/o/n", DeliverTarget::Github, None, true, true),
            ("https://gitlab.com/g/s/n", DeliverTarget::Gitlab, None, true, true),
            ("https://codeberg.org/o/n", DeliverTarget::Forgejo, None, true, true),
            ("https://codeberg.org/o/n", DeliverTarget::Github, None, true, false),
            ("https://h.org/o/n", DeliverTarget::Forgejo, None, true, false),
            (
                "https://h.org/o/n",
                DeliverTarget::Forgejo,
                Some("https://h.org/api/v1"),
                true,
                true,
            ),
            ("https://h.org/o/n", DeliverTarget::Forgejo, None, false, true),
            ("http://h.org/o/n", DeliverTarget::Forgejo, None, false, false),
            (
                "http://h.org/o/n",
                DeliverTarget::Forgejo,
                Some("https://h.org/api/v1"),
                false,
                false,
            ),
            (
                "http://h.org/o/n",
                DeliverTarget::Forgejo,
                Some("https://i.org/api/v1"),
                false,
                true,
            ),
            (
                "https://h.org/o/n",
                DeliverTarget::Forgejo,
                Some("http://h.org/api/v1"),
                false,
                false,
            ),
        ] {
            let found = remote(url).of_forge(target, given, named_by_job);
            assert_eq!(found.is_ok(), sent, "{url} {given:?} {found:?}");
        }
        let project = |target| {
            remote("https://h.org/a/o/n")
                .of_forge(target, None, false)
                .unwrap()
                .0
                .project
        };
        assert_eq!(project(DeliverTarget::Gitlab).as_deref(), Some("a/o/n"));
        assert_eq!(project(DeliverTarget::Forgejo).as_deref(), Some("o/n"));
    }
}
