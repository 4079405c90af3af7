//! A CONNECT proxy on the loopback interface of a confined command: its only way to the hosts that a policy grants. It
//! relays bytes without inspecting them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Concurrent connections of one command.
const CONNECTIONS: usize = 64;
/// Bytes of a request up to and including its empty line.
const HEAD: usize = 8 << 10;
/// Time limit for each of: reading the request, resolving the name, connecting.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The checks that the proxy applies. Passed in because rules on hosts and addresses are defined elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct ProxyRules {
    /// Whether one of the patterns grants a host at a port.
    pub host_fits: fn(host: &str, port: u16, patterns: &[String]) -> bool,
    /// Whether an address belongs to the public network.
    pub address_is_public: fn(IpAddr) -> bool,
}

static RULES: OnceLock<ProxyRules> = OnceLock::new();

/// Sets the rules. Call it once, early; without it no host can be granted.
pub fn use_rules(rules: ProxyRules) {
    // A second call passes the same rules.
    let _ = RULES.set(rules);
}

/// The rules, if they were set.
pub(super) fn rules() -> Option<ProxyRules> {
    RULES.get().copied()
}

/// The environment variables by which programs find the proxy.
pub(super) fn variables(port: u16) -> Vec<(String, String)> {
    let proxy = format!("http://127.0.0.1:{port}");
    let names = [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ];
    let mut variables: Vec<(String, String)> = names.map(|name| (name.to_owned(), proxy.clone())).to_vec();
    for name in ["no_proxy", "NO_PROXY"] {
        variables.push((name.to_owned(), "localhost,127.0.0.1,::1".to_owned()));
    }
    variables
}

/// Serves a listening socket until the future is dropped; its connections end then too.
pub(super) async fn serve(listener: OwnedFd, hosts: Vec<String>, rules: ProxyRules) -> io::Result<()> {
    let listener = std::net::TcpListener::from(listener);
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let hosts = Arc::new(hosts);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return Ok(());
        };
        let (client, _) = listener.accept().await?;
        let hosts = Arc::clone(&hosts);
        open.spawn(async move {
            // A connection that fails concerns only the command.
            let _ = talk(client, &hosts, rules).await;
            drop(permit);
        });
        while open.try_join_next().is_some() {}
    }
}

async fn talk(mut client: TcpStream, hosts: &[String], rules: ProxyRules) -> io::Result<()> {
    let (head, early) = match timeout(TIMEOUT, read_head(&mut client)).await {
        Ok(Ok(Some(request))) => request,
        _ => return refuse(&mut client, "400 Bad Request", "not a valid request").await,
    };
    let (host, port) = match target(&head) {
        Ok(target) => target,
        Err(why) => return refuse(&mut client, "405 Method Not Allowed", why).await,
    };
    if !(rules.host_fits)(&host, port, hosts) {
        let why = format!("{host}:{port} is not among the network hosts that the policy grants");
        return refuse(&mut client, "403 Forbidden", &why).await;
    }
    let mut server = match reach(&host, port, rules).await {
        Ok(server) => server,
        Err(why) => return refuse(&mut client, "502 Bad Gateway", &why).await,
    };
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    server.write_all(&early).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// The lines of a request up to the empty one, and the bytes after it. `None` when the request ends early or is too
/// long.
async fn read_head(client: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    while bytes.len() < HEAD {
        let count = client.read(&mut piece).await?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece[..count]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let early = bytes.split_off(end + 4);
            return Ok(String::from_utf8(bytes).ok().map(|head| (head, early)));
        }
    }
    Ok(None)
}

/// Host and port of a CONNECT request.
fn target(head: &str) -> Result<(String, u16), &'static str> {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, authority, version) = (words.next(), words.next(), words.next());
    if method != Some("CONNECT") {
        return Err("this proxy accepts only CONNECT requests, for https");
    }
    let fits = version.is_some_and(|version| version.starts_with("HTTP/1.")) && words.next().is_none();
    let (host, port) = authority
        .and_then(|text| text.rsplit_once(':'))
        .ok_or("no host and port")?;
    let port = port.parse::<u16>().map_err(|_| "not a port")?;
    if !fits || !is_name(host) {
        return Err("not a host name");
    }
    Ok((host.to_ascii_lowercase(), port))
}

/// A plain DNS name: no IP address, no dot at either end, nothing that a resolver and the comparison could read
/// differently.
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253
        && host.split('.').all(label)
        && host
            .rsplit('.')
            .next()
            .is_some_and(|last| last.bytes().any(|byte| byte.is_ascii_alphabetic()))
}

/// Resolves the name once, refuses it if any address is not public, and connects to the addresses that were checked.
async fn reach(host: &str, port: u16, rules: ProxyRules) -> Result<TcpStream, String> {
    let found = timeout(TIMEOUT, lookup_host((host, port))).await;
    let addresses: Vec<SocketAddr> = match found {
        Ok(Ok(found)) => found.collect(),
        _ => return Err(format!("{host} cannot be resolved")),
    };
    if addresses.iter().any(|address| !(rules.address_is_public)(address.ip())) {
        return Err(format!("{host} has an address that is not public"));
    }
    for address in addresses {
        if let Ok(Ok(server)) = timeout(TIMEOUT, TcpStream::connect(address)).await {
            return Ok(server);
        }
    }
    Err(format!("{host}:{port} cannot be reached"))
}

async fn refuse(client: &mut TcpStream, status: &str, why: &str) -> io::Result<()> {
    let body = format!("{why}\n");
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_connect_names_a_host() {
        assert_eq!(
            target("CONNECT Docs.rs:443 HTTP/1.1\r\n\r\n"),
            Ok(("docs.rs".to_owned(), 443))
        );
        for bad in [
            "GET http://docs.rs/ HTTP/1.1",
            "CONNECT docs.rs HTTP/1.1",
            "CONNECT docs.rs:x HTTP/1.1",
            "CONNECT docs.rs:443",
            "CONNECT docs.rs:443 HTTP/1.1 x",
            "CONNECT a\0.docs.rs:443 HTTP/1.1",
            "CONNECT docs.rs.:443 HTTP/1.1",
            "CONNECT 127.0.0.1:443 HTTP/1.1",
            "CONNECT [::1]:443 HTTP/1.1",
            "CONNECT 0x7f.1:443 HTTP/1.1",
            "CONNECT a@docs.rs:443 HTTP/1.1",
            "CONNECT -a.rs:443 HTTP/1.1",
            "",
        ] {
            assert!(target(bad).is_err(), "{bad:?}");
        }
    }

    async fn answer(request: &str, rules: ProxyRules) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener.into(), vec!["localhost".to_owned()], rules));
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 300];
        let count = client.read(&mut answer).await.unwrap();
        serving.abort();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    }

    const OPEN: ProxyRules = ProxyRules {
        host_fits: |host, _, patterns| patterns.iter().any(|pattern| pattern == host),
        address_is_public: |_| true,
    };

    #[tokio::test]
    async fn a_granted_host_is_reached_and_bytes_go_through() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut peer, _) = server.accept().await.unwrap();
            let mut word = [0; 2];
            peer.read_exact(&mut word).await.unwrap();
            assert_eq!(&word, b"hi");
        });
        let text = answer(&format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nhi"), OPEN).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }

    #[tokio::test]
    async fn other_hosts_and_private_addresses_are_refused() {
        let other = answer("CONNECT example.org:443 HTTP/1.1\r\n\r\n", OPEN).await;
        assert!(other.starts_with("HTTP/1.1 403"), "{other}");
        let closed = ProxyRules {
            address_is_public: |address| !address.is_loopback(),
            ..OPEN
        };
        let private = answer("CONNECT localhost:443 HTTP/1.1\r\n\r\n", closed).await;
        assert!(
            private.starts_with("HTTP/1.1 502") && private.contains("not public"),
            "{private}"
        );
        let plain = answer("GET http://localhost/ HTTP/1.1\r\n\r\n", OPEN).await;
        assert!(plain.starts_with("HTTP/1.1 405"), "{plain}");
    }
}
