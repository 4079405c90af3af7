//! Classifies the bytes of a file: text, media that a model accepts, or other binary data. No I/O.

use super::text::{Text, decode};
use crate::base::content::Media;
use base64::Engine;

/// Upper limit in bytes for an image, sound or document.
pub const MAX_MEDIA: u64 = 8 << 20;

/// The content of a file.
pub enum FileContent {
    Text(Text),
    /// An image, audio or PDF, with its MIME type.
    Media(&'static str),
    /// Anything else, with the MIME type if known.
    Binary(Option<&'static str>),
}

/// Classifies by the bytes; the file extension decides only if the bytes are ambiguous.
pub fn classify(path: &str, bytes: &[u8]) -> FileContent {
    let mime = infer::get(bytes).map(|kind| kind.mime_type());
    let media =
        mime.filter(|mime| mime.starts_with("image/") || mime.starts_with("audio/") || *mime == "application/pdf");
    if let Some(mime) = media
        && is_media_name(path)
    {
        return FileContent::Media(mime);
    }
    match (decode(bytes), media) {
        (Ok(text), _) => FileContent::Text(text),
        (Err(_), Some(mime)) => FileContent::Media(mime),
        (Err(_), None) => FileContent::Binary(mime),
    }
}

/// Whether a file name has the extension of an image, audio or PDF file.
fn is_media_name(path: &str) -> bool {
    const ENDINGS: [&str; 18] = [
        "png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "heic", "avif", "ico", "pdf", "mp3", "wav", "aiff",
        "aac", "ogg", "flac",
    ];
    path.rsplit_once('.')
        .is_some_and(|(_, ending)| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// The bytes as part of a message.
pub fn media(path: &str, mime: &str, bytes: &[u8]) -> Media {
    Media {
        mime: mime.to_owned(),
        data: base64::engine::general_purpose::STANDARD.encode(bytes),
        name: Some(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(path: &str, bytes: &[u8]) -> String {
        match classify(path, bytes) {
            FileContent::Text(_) => "text".to_owned(),
            FileContent::Media(mime) => mime.to_owned(),
            FileContent::Binary(mime) => format!("binary {}", mime.unwrap_or("?")),
        }
    }

    #[test]
    fn bytes_decide_and_names_settle_doubts() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01";
        let cases: [(&str, &[u8], &str); 9] = [
            ("a.png", png, "image/png"),
            ("no-ending", png, "image/png"),
            ("a.rs", b"fn main() {}\n", "text"),
            ("notes.txt", b"BM is how this text begins", "text"),
            ("a.svg", b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "text"),
            ("a.pdf", b"%PDF-1.4\n%%EOF\n", "application/pdf"),
            ("a.png", b"not a picture", "text"),
            ("a.zip", b"PK\x03\x04\0\0\0\0\0\0", "binary application/zip"),
            ("a.bin", b"\x01\0\x02\0\0\x03", "binary ?"),
        ];
        for (path, bytes, expected) in cases {
            assert_eq!(kind(path, bytes), expected, "{path}");
        }
    }
}
