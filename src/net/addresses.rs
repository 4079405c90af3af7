//! Classifies IP addresses as public or not, for names that have been resolved. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is publicly routable.
///
/// Loopback, private, link-local, shared (CGNAT), multicast, unspecified, documentation, benchmarking and reserved
/// ranges are not; nor are IPv6 addresses that embed such an IPv4 address (mapped, compatible, NAT64, 6to4), and any
/// Teredo or private NAT64 address.
pub fn address_is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 31, 196)
            | (192, 52, 193)
            | (192, 88, 99)
            | (192, 168, _)
            | (192, 175, 48)
            | (198, 18..=19, _)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224..=255, ..)
    )
}

fn v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = embedded_v4(address) {
        return v4(inner);
    }
    let [a, b, c, ..] = address.segments();
    // IANA allocates global unicast addresses only from 2000::/3.
    let global = (a & 0xe000) == 0x2000;
    let teredo_or_special = a == 0x2001 && (b < 0x0200);
    let documentation = (a == 0x2001 && b == 0x0db8) || (a == 0x3fff && b < 0x1000);
    let as112 = a == 0x2620 && b == 0x004f && c == 0x8000;
    global && !teredo_or_special && !documentation && !as112
}

/// The IPv4 address that an IPv6 address embeds.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let low = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match s {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, l]
        | [0, 0, 0, 0, 0xffff, 0, high, l]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, l] => Some(low(high, l)),
        [0x2002, high, l, ..] => Some(low(high, l)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public() {
        let table = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
        ];
        for address in table {
            assert!(address_is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn not_public() {
        let table = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
            "4000::1",
        ];
        for address in table {
            assert!(!address_is_public(address.parse().unwrap()), "{address}");
        }
    }
}
