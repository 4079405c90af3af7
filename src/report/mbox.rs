//! Writes the patch of a run as one mail message for `git am`. Pure. The message contains no text that a model wrote,
//! except the patch.

use super::summary::RunSummary;
use super::text;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

/// Limit of the subject's own text, in characters.
const SUBJECT: usize = 100;
/// Length of a line of base64.
const LINE: usize = 76;
/// The author of the commit. Whoever applies it can set another: `git commit --amend --reset-author`.
const AUTHOR: &str = "overnight <overnight@localhost>";

/// The message. A run that changed nothing has none.
pub fn mail(sum: &RunSummary<'_>, patch: Option<&[u8]>) -> Vec<u8> {
    let Some(patch) = patch.filter(|patch| !patch.is_empty()) else {
        return Vec::new();
    };
    let recipe = text::line(sum.recipe(), SUBJECT);
    let plan = sum.head.map(|head| &head.plan);
    let about = plan
        .and_then(|plan| plan.get("description"))
        .and_then(|about| about.as_str());
    let about = about.and_then(|about| about.lines().next()).unwrap_or_default().trim();
    let subject = match about {
        "" => recipe.to_string(),
        about => text::line(&format!("{recipe}: {about}"), SUBJECT).to_string(),
    };
    let digest = sum.head.map(|head| head.plan_digest.clone()).unwrap_or_default();
    let mut body = format!(
        "Made by a run of overnight.\n\nOvernight-Run: {}\nOvernight-Recipe: {recipe} sha256:{digest}\n---\n",
        text::line(sum.run(), SUBJECT)
    )
    .into_bytes();
    body.extend(patch);
    // Mail readers strip carriage returns from lines, and decode bytes that are not UTF-8 as another character set.
    let plain = !patch.contains(&b'\r') && std::str::from_utf8(patch).is_ok();
    let mut mail = format!(
        "From {} Mon Sep 17 00:00:00 2001\nFrom: {AUTHOR}\nDate: {}\nSubject: {}\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: {}\n\n",
        "0".repeat(40),
        sum.ended
            .or(sum.started)
            .unwrap_or(Timestamp::UNIX_EPOCH)
            .strftime("%a, %d %b %Y %H:%M:%S +0000"),
        header(&format!("[PATCH] {subject}")),
        if plain { "8bit" } else { "base64" },
    )
    .into_bytes();
    match plain {
        true => mail.extend(body),
        false => {
            for line in STANDARD.encode(body).as_bytes().chunks(LINE) {
                mail.extend(line);
                mail.push(b'\n');
            }
        }
    }
    if !mail.ends_with(b"\n") {
        mail.push(b'\n');
    }
    mail
}

/// The value of a header: unchanged, or as encoded words of at most 75 characters (RFC 2047).
fn header(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut words: Vec<String> = vec![String::new()];
    for letter in text.chars() {
        let full = words.last().is_none_or(|word| word.len() + letter.len_utf8() > 45);
        if full {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    let encoded: Vec<String> = words
        .iter()
        .map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)))
        .collect();
    encoded.join("\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stay_ascii_and_short() {
        assert_eq!(header("[PATCH] plain"), "[PATCH] plain");
        let long = header(&"ü".repeat(100));
        assert!(long.is_ascii() && long.lines().all(|line| line.len() <= 76), "{long}");
    }
}
