//! Names of MCP servers with which `SERVER__TOOL` is unambiguous.

/// The longest server name, in bytes.
const MAX_LENGTH: usize = 40;

/// Whether a server may have this name: letters, digits, `-` and single `_`, not ending in `_`.
pub fn is_server_name(name: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(of_name)
        && !name.contains("__")
        && !name.ends_with('_')
        && name.len() <= MAX_LENGTH
}

/// The name itself if a server may have it, otherwise the nearest such name.
pub fn sound_server_name(name: &str) -> String {
    if is_server_name(name) {
        return name.to_owned();
    }
    let mut sound = String::new();
    for character in name.chars() {
        match character {
            c if c.is_ascii_alphanumeric() || c == '-' => sound.push(c),
            _ if sound.ends_with('-') => {}
            _ => sound.push('-'),
        }
    }
    let sound: String = sound.trim_matches('-').chars().take(MAX_LENGTH).collect();
    if sound.is_empty() { "server".to_owned() } else { sound }
}
