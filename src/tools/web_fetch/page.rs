//! Converts a response body for the model: charset, HTML to Markdown, media. Pure; limited against hostile pages.

use crate::base::content::Media;
use crate::tools::time_limit;
use crate::workspace::content::media;
use dom_smoothie::{Config, Readability};
use encoding_rs::{Encoding, UTF_8};
use htmd::HtmlToMarkdown;
use std::collections::HashMap;
use std::time::Duration;

/// Upper limit for nested elements; deeper pages are read as plain text, because HTML readers recurse.
const DEPTH_MOST: usize = 400;
/// How long a page is converted; after that it is read as plain text.
const LONGEST: Duration = Duration::from_secs(5);
/// Upper limit for the elements that are scored to find the article of a page.
const ELEMENTS_MOST: usize = 50_000;
/// An article with fewer characters, or a smaller share of the page in percent, is not used in place of the whole page.
const ARTICLE_LEAST: (usize, usize) = (400, 30);

/// A page as the model receives it.
#[derive(Clone, Debug, PartialEq)]
pub enum WebPage {
    Text {
        /// `HTML as Markdown`, or the MIME type.
        form: String,
        text: String,
    },
    Media(Media),
}

impl WebPage {
    /// Number of characters of text.
    pub fn chars(&self) -> usize {
        match self {
            WebPage::Text { text, .. } => text.chars().count(),
            WebPage::Media(_) => 0,
        }
    }
}

/// Converts a response body. `url`: where it was found; `cut`: whether bytes are missing at its end.
///
/// # Errors
/// A message fragment: the body is neither text nor an image or PDF, or an image is incomplete.
pub fn read(url: &str, content_type: &str, body: &[u8], cut: bool) -> Result<WebPage, String> {
    let mime = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if let Some(found) = infer::get(body).map(|kind| kind.mime_type())
        && (found.starts_with("image/") || found == "application/pdf")
    {
        let name = url.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(url);
        return match cut {
            true => Err(format!("{found} longer than 1 MiB")),
            false => Ok(WebPage::Media(media(name, found, body))),
        };
    }
    if !(is_text(&mime) || mime.is_empty() || mime == "application/octet-stream") {
        return Err(format!("{mime} is neither text nor an image or PDF"));
    }
    if body.contains(&0) && Encoding::for_bom(body).is_none() && label(content_type).is_none() {
        return Err("the content is binary".to_owned());
    }
    let text = decode(content_type, &mime, body);
    let html = mime.contains("html") || (mime.is_empty() && looks_like_html(&text));
    if !html {
        let form = if mime.is_empty() { "text".to_owned() } else { mime };
        return Ok(WebPage::Text { form, text });
    }
    Ok(WebPage::Text {
        form: "HTML as Markdown".to_owned(),
        text: markdown(url, &text, LONGEST),
    })
}

fn is_text(mime: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "application/json",
        "application/xml",
        "application/xhtml+xml",
        "application/javascript",
        "application/ecmascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/x-ndjson",
        "application/sql",
        "application/x-sh",
        "application/graphql",
    ];
    mime.starts_with("text/")
        || mime == "image/svg+xml"
        || mime.ends_with("+json")
        || mime.ends_with("+xml")
        || mime.ends_with("+yaml")
        || OTHERS.contains(&mime)
}

fn looks_like_html(text: &str) -> bool {
    let start: String = text
        .trim_start()
        .chars()
        .take(200)
        .collect::<String>()
        .to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// The charset in a content type, or in an attribute of `meta`.
fn label(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let rest = lower.split_once("charset")?.1.trim_start().strip_prefix('=')?;
    let rest = rest.trim_start().trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '>' | '/'));
    Encoding::for_label(rest.get(..end.unwrap_or(rest.len()))?.as_bytes())
}

/// Decodes a body: by its byte order mark, the header, the page's own `meta`, else as UTF-8.
fn decode(content_type: &str, mime: &str, body: &[u8]) -> String {
    let from_page = || {
        let start = String::from_utf8_lossy(body.get(..2_048.min(body.len())).unwrap_or_default());
        mime.contains("html").then(|| label(&start)).flatten()
    };
    let encoding = label(content_type).or_else(from_page).unwrap_or(UTF_8);
    encoding.decode(body).0.into_owned()
}

/// A page as Markdown: its article if that is most of the page, else the whole page. Links are kept, images removed.
fn markdown(url: &str, html: &str, longest: Duration) -> String {
    if depth(html) > DEPTH_MOST {
        return plain(html);
    }
    let (url, copy) = (url.to_owned(), html.to_owned());
    let read = time_limit::within(longest, move || converted(&url, &copy));
    read.ok().flatten().unwrap_or_else(|| plain(html))
}

fn converted(url: &str, html: &str) -> Option<String> {
    let whole = turned(html)?;
    let config = Config {
        max_elements_to_parse: ELEMENTS_MOST,
        ..Config::default()
    };
    let article = Readability::new(html, Some(url), Some(config)).ok()?.parse();
    let Ok(article) = article else {
        return Some(whole);
    };
    let (least, share) = ARTICLE_LEAST;
    if article.length < least || article.length * 100 < whole.chars().count() * share {
        return Some(whole);
    }
    let body = turned(&article.content)?;
    let title = article.title.trim();
    let headed = title.is_empty() || body.starts_with(&format!("# {title}"));
    Some(if headed { body } else { format!("# {title}\n\n{body}") })
}

fn turned(html: &str) -> Option<String> {
    const GONE: [&str; 16] = [
        "script", "style", "noscript", "template", "iframe", "svg", "canvas", "img", "picture", "video", "audio",
        "object", "button", "input", "select", "head",
    ];
    let text = HtmlToMarkdown::builder()
        .skip_tags(GONE.to_vec())
        .build()
        .convert(html)
        .ok()?;
    Some(tidy(&text))
}

/// Removes trailing whitespace, repeated empty lines, and links without text.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines().map(str::trim_end) {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 && !(line.starts_with("[](") && line.ends_with(')')) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.trim().to_owned()
}

/// Nesting depth of elements; every start tag without an end tag counts.
fn depth(html: &str) -> usize {
    // Void elements, and those that the next of their kind closes.
    const FLAT: [&str; 22] = [
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
        "p", "li", "dt", "dd", "td", "th", "tr", "option",
    ];
    let mut open: HashMap<String, usize> = HashMap::new();
    let (mut now, mut most) = (0_usize, 0);
    for piece in html.split('<').skip(1) {
        let (ends, rest) = piece.strip_prefix('/').map_or((false, piece), |rest| (true, rest));
        let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).take(32).collect();
        let name = name.to_ascii_lowercase();
        if name.is_empty() || FLAT.contains(&name.as_str()) {
            continue;
        }
        let count = open.entry(name).or_default();
        if !ends {
            *count += 1;
            now += 1;
            most = most.max(now);
        } else if *count > 0 {
            *count -= 1;
            now -= 1;
        }
    }
    most
}

/// The text between tags, for pages that cannot be converted otherwise.
fn plain(html: &str) -> String {
    let mut out = String::new();
    let mut hidden: Option<&str> = None;
    for piece in html.split('<') {
        let (tag, text) = piece.split_once('>').unwrap_or(("", piece));
        let name = tag
            .split(|c: char| c.is_whitespace() || c == '/')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        match hidden {
            Some(until) if tag.to_ascii_lowercase().starts_with(&format!("/{until}")) => hidden = None,
            Some(_) => continue,
            None => hidden = ["script", "style"].into_iter().find(|known| *known == name),
        }
        if hidden.is_none() && !text.trim().is_empty() {
            out.push_str(text.trim());
            out.push('\n');
        }
    }
    tidy(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content_type: &str, body: &[u8]) -> String {
        match read("https://docs.test/guide/page.html", content_type, body, false) {
            Ok(WebPage::Text { text, .. }) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn html_becomes_markdown_with_links_and_without_images() {
        let html = "<html><head><title>T</title><style>p{}</style></head><body><h1>Title</h1><p>See <a href=\"https://a.test/x\">this\
            </a>.</p><img src=x alt=gone><script>alert(1)</script><ul><li>one</li><li>two</li></ul><pre><code>let a = 1;\n</code></pre>";
        let text = text("text/html", html.as_bytes());
        for part in ["# Title", "[this](https://a.test/x)", "one", "let a = 1;"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        for part in ["gone", "alert", "p{}"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn an_article_is_told_from_what_stands_around_it() {
        let paragraphs: String = (0..12)
            .map(|n| format!("<p>Paragraph {n} of the article has a good many words, with commas, so that it counts as prose. It goes on.</p>"))
            .collect();
        let html = format!(
            "<html><head><title>The article</title></head><body><nav><a href=/a>Home</a><a href=/b>About</a></nav>\
             <article><h2>Part</h2>{paragraphs}<p>See <a href=\"other.html\">more</a>.</p></article><footer>Copyright</footer>"
        );
        let text = text("text/html; charset=utf-8", html.as_bytes());
        assert!(text.contains("Paragraph 11"), "{text}");
        assert!(text.contains("https://docs.test/guide/other.html"), "{text}");
        assert!(!text.contains("Copyright") && !text.contains("Home"), "{text}");
    }

    #[test]
    fn charsets_are_taken_from_mark_header_and_page() {
        assert_eq!(text("text/plain; charset=iso-8859-1", b"caf\xe9"), "caf\u{e9}");
        assert_eq!(text("text/plain; charset=\"Shift_JIS\"", b"\x93\xfa"), "日");
        assert_eq!(text("text/plain", b"\xff\xfea\x00b\x00"), "ab");
        assert_eq!(text("text/html", b"<meta charset=windows-1251><p>\xcf\xf0"), "Пр");
        assert_eq!(text("application/json", b"{\"a\": 1}"), "{\"a\": 1}");
    }

    #[test]
    fn media_and_binary_are_told_apart() {
        let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 32]].concat();
        let page = read("https://docs.test/a.png", "text/html", &png, false).unwrap();
        assert!(
            matches!(page, WebPage::Media(media) if media.mime == "image/png" && media.name.as_deref() == Some("a.png"))
        );
        assert!(read("https://docs.test/a.png", "image/png", &png, true).is_err());
        assert!(read("https://docs.test/a", "application/zip", b"PK\x03\x04", false).is_err());
        assert!(read("https://docs.test/a", "", b"a\x00b", false).is_err());
    }

    #[test]
    fn a_page_that_takes_too_long_is_read_as_plain_text() {
        // Each attribute is compared with all before it.
        let attributes: String = (0..30_000).map(|n| format!(" a{n}=1")).collect();
        let html = format!("<p>first <b>word</b><a{attributes}>last</a>");
        let text = markdown("https://docs.test/", &html, Duration::from_millis(20));
        assert_eq!(text, "first\nword\nlast");
    }

    #[test]
    fn hostile_depth_is_read_as_plain_text() {
        for tag in ["div", "b", "x-y", "svg", "table"] {
            let html = format!("{}deep{}", format!("<{tag}>").repeat(100_000), "</x>".repeat(1_000));
            assert!(text("text/html", html.as_bytes()).contains("deep"), "{tag}");
        }
        let flat = "<p>one<li>two</p>".repeat(20_000);
        assert!(depth(&flat) < DEPTH_MOST);
    }
}
