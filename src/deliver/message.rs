//! The texts of a delivery: branch name, title, description and commit message. Templates come from the recipe's
//! author; the values filled in are escaped.

use super::deliverable::Deliverable;
use super::inert;
use crate::base::slug::slug;
use crate::recipe::template::{self, StepOutputs, TemplateScope};
use serde_json::Value;
use std::collections::BTreeMap;

/// Limit of a title, in characters. GitHub allows 256.
const TITLE: usize = 200;
/// Limit of a description, in bytes. GitHub allows 65,536 characters.
const BODY: usize = 60_000;
/// Limit of a commit message without its trailers, in bytes.
const MESSAGE: usize = 20_000;
/// Limit of a branch name, in bytes.
const BRANCH: usize = 200;
/// Limit of labels and of reviewers that are set.
const NAMES: usize = 20;

/// Start and end of the marker in a description. It is an HTML comment, which forges do not display.
const MARKER: &str = "<!-- overnight\n";
const MARKER_END: &str = "\n-->";

/// Settings of the request from the command line.
#[derive(Clone, Debug, Default)]
pub struct Wording {
    pub title: Option<String>,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub draft: bool,
    pub branch: Option<String>,
}

/// All texts of a delivery.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    pub branch: String,
    /// The target branch, when the recipe names one.
    pub base: Option<String>,
    pub title: String,
    /// Without the marker.
    pub body: String,
    /// Without the trailers.
    pub message: String,
    pub labels: Vec<String>,
    pub reviewers: Vec<String>,
    pub draft: bool,
    /// The recipe's name in the form for a branch and a trailer.
    pub recipe: String,
}

/// The variables of a template; their texts are escaped by one of the functions of [`inert`].
fn scope(of: &Deliverable, make: fn(&str) -> String) -> BTreeMap<String, Value> {
    let mut values: BTreeMap<String, Value> = of
        .plan
        .values
        .iter()
        .map(|(name, value)| (name.clone(), inert::value(value, make)))
        .collect();
    let field = |name: &str| of.result.get(name).cloned().unwrap_or(Value::Null);
    let answer = match field("output") {
        Value::Null => field("response"),
        output => output,
    };
    let job = of.job.as_ref().map(|job| job.name.clone()).unwrap_or_default();
    values.insert("answer".to_owned(), inert::value(&answer, make));
    values.insert("result".to_owned(), inert::value(&of.result, make));
    // The summary is already escaped, and its headings must be kept.
    values.insert("summary".to_owned(), Value::String(of.summary.clone()));
    values.insert("recipe".to_owned(), Value::String(make(&of.recipe)));
    values.insert("job".to_owned(), Value::String(make(&job)));
    values.insert("digest".to_owned(), Value::String(short(&of.patch_digest).to_owned()));
    values
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// Renders all texts of a delivery.
///
/// # Errors
/// A sentence that says what is wrong: a template of the recipe cannot be rendered, or gives no valid branch name.
pub fn texts(of: &Deliverable, wording: &Wording) -> Result<Texts, String> {
    let mut own = of.plan.deliver.clone().unwrap_or_default();
    if !of.recipe_trusted {
        (own.branch, own.base) = (None, None);
        own.labels.clear();
        own.reviewers.clear();
    }
    let none = StepOutputs::new();
    let render = |key: &str, text: &str, make: fn(&str) -> String| {
        let values = scope(of, make);
        let input = of.plan.input.as_ref().map(|input| inert::value(input, make));
        let scope = TemplateScope {
            values: &values,
            input: input.as_ref(),
            steps: &none,
        };
        template::render(text, &scope).map_err(|error| format!("the recipe's `deliver.{key}`: {error}"))
    };
    let rendered = |key: &str, text: &Option<String>, make: fn(&str) -> String| {
        let one = |text: &String| match of.recipe_trusted {
            true => render(key, text, make),
            // The template's own text is escaped too.
            false => render(key, text, str::to_owned).map(|text| make(&text)),
        };
        text.as_ref().map(one).transpose()
    };
    let recipe = branch_part(&of.recipe);
    let title = match &wording.title {
        Some(title) => title.clone(),
        None => rendered("title", &own.title, inert::plain)?.unwrap_or_else(|| default_title(of)),
    };
    let mut title = one_line(&title, TITLE);
    if title.is_empty() {
        title = one_line(&default_title(of), TITLE);
    }
    let body = rendered("body", &own.body, inert::markdown)?.unwrap_or_else(|| of.summary.clone());
    let message = rendered("commit", &own.commit, inert::plain)?.unwrap_or_else(|| default_message(of, &title));
    let list = |key: &str, texts: &[String], more: &[String]| -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        for text in texts {
            all.push(one_line(&render(key, text, str::to_owned)?, 100));
        }
        all.extend(more.iter().map(|text| one_line(text, 100)));
        all.retain(|text| !text.is_empty());
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|text| seen.insert(text.clone()));
        all.truncate(NAMES);
        Ok(all)
    };
    let branch = match &wording.branch {
        Some(branch) => branch.clone(),
        None => match rendered("branch", &own.branch, str::to_owned)? {
            Some(branch) => branch,
            None => default_branch(of),
        },
    };
    Ok(Texts {
        branch: branch_name(&branch, of)?,
        base: rendered("base", &own.base, str::to_owned)?.map(|base| base.trim().to_owned()),
        title,
        body: bounded(body.trim(), BODY),
        message: bounded(message.trim(), MESSAGE),
        labels: list("labels", &own.labels, &wording.labels)?,
        reviewers: list("reviewers", &own.reviewers, &wording.reviewers)?,
        draft: own.draft || wording.draft,
        recipe,
    })
}

fn default_title(of: &Deliverable) -> String {
    let first = of.plan.description.lines().next().unwrap_or_default().trim();
    match first.trim_end_matches('.') {
        "" => format!("overnight: {}", inert::plain(&of.recipe)),
        first if of.recipe_trusted => first.to_owned(),
        first => inert::plain(first),
    }
}

/// The keys of the recipe's `deliver` block that are left out because the recipe was not trusted.
pub fn left_out(of: &Deliverable) -> Vec<&'static str> {
    let Some(own) = of.plan.deliver.as_ref().filter(|_| !of.recipe_trusted) else {
        return Vec::new();
    };
    [
        ("branch", own.branch.is_some()),
        ("base", own.base.is_some()),
        ("labels", !own.labels.is_empty()),
        ("reviewers", !own.reviewers.is_empty()),
    ]
    .into_iter()
    .filter_map(|(key, named)| named.then_some(key))
    .collect()
}

fn default_message(of: &Deliverable, title: &str) -> String {
    let response = of.result.get("response").and_then(Value::as_str).unwrap_or_default();
    match one_line(response, 2_000).as_str() {
        "" => title.to_owned(),
        _ => format!("{title}\n\n{}", inert::plain(&bounded(response.trim(), 2_000))),
    }
}

fn default_branch(of: &Deliverable) -> String {
    match &of.job {
        Some(job) if job.in_branch => "overnight/{recipe}-{job}".to_owned(),
        _ => "overnight/{recipe}".to_owned(),
    }
}

/// A name as a part of a branch name.
fn branch_part(name: &str) -> String {
    match slug(name).as_str() {
        "" => "run".to_owned(),
        part => part.to_owned(),
    }
}

/// Whether git allows this as the name of a branch, with or without `refs/heads/`.
pub fn is_branch_name(text: &str) -> bool {
    let name = text.strip_prefix("refs/heads/").unwrap_or(text);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_odd = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let is_reserved = name.starts_with('-') || name.ends_with('.') || name == "@" || name == "HEAD";
    !is_reserved
        && name.split('/').all(is_part)
        && !name.contains(is_odd)
        && !name.contains("..")
        && !name.contains("@{")
}

/// A branch name with `{recipe}`, `{job}` and `{digest}` filled in, in characters that git, shells and all forges
/// accept.
fn branch_name(text: &str, of: &Deliverable) -> Result<String, String> {
    let job = of.job.as_ref().map_or(of.run.as_str(), |job| job.name.as_str());
    let filled = text
        .trim()
        .replace("{recipe}", &branch_part(&of.recipe))
        .replace("{job}", &branch_part(job))
        .replace("{digest}", short(&of.patch_digest));
    let filled = filled.strip_prefix("refs/heads/").unwrap_or(&filled);
    let mut parts = Vec::new();
    for part in filled.split('/') {
        let mut part = branch_part(part);
        while part.contains("..") {
            part = part.replace("..", ".");
        }
        if let Some(stem) = part.strip_suffix(".lock") {
            part = format!("{stem}-lock");
        }
        parts.push(part);
    }
    let name = parts.join("/");
    if filled.is_empty() || name.len() > BRANCH || name == "HEAD" {
        return Err(format!("`{text}` is not a valid branch name"));
    }
    Ok(name)
}

/// A text as one line of at most `most` characters.
pub fn one_line(text: &str, most: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    match line.char_indices().nth(most) {
        Some(_) => line.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => line,
    }
}

fn bounded(text: &str, most: usize) -> String {
    const NOTICE: &str = "\n\n… cut here; the full text is in the run's result.json.";
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = &text[..text.floor_char_boundary(most - NOTICE.len())];
    format!("{kept}{NOTICE}")
}

/// A description with the marker that names the request's patch and the digest of title and text as written here.
pub fn marked(title: &str, body: &str, trailers: &str) -> String {
    let text = crate::base::ids::sha256_hex(&[title.as_bytes(), b"\n", settled(body).as_bytes()]);
    let trailers = in_comment(trailers);
    format!("{body}\n\n{MARKER}{trailers}\nOvernight-Text: sha256:{text}{MARKER_END}\n")
}

/// A text made safe for an HTML comment, which it cannot end.
pub fn in_comment(text: &str) -> String {
    text.replace("--", "-\u{200b}-")
}

/// The body and the marker's lines of a description. Text that a person wrote below the marker is part of the body.
pub fn unmarked(description: &str) -> (String, Option<String>) {
    let text = description.replace("\r\n", "\n");
    let Some((before, rest)) = text.rsplit_once(MARKER) else {
        return (settled(&text), None);
    };
    let Some((lines, after)) = rest.split_once(MARKER_END) else {
        return (settled(before), None);
    };
    let body = match after.trim() {
        "" => settled(before),
        after => format!("{}\n\n{after}", settled(before)),
    };
    (body, Some(lines.to_owned()))
}

/// Whether title and description are as a delivery wrote them, unedited.
pub fn is_untouched(title: &str, description: &str) -> bool {
    let (body, lines) = unmarked(description);
    let Some(lines) = lines else { return false };
    let expected = crate::base::ids::sha256_hex(&[title.as_bytes(), b"\n", body.as_bytes()]);
    super::own_commits::trailer(&lines, "Overnight-Text") == Some(&format!("sha256:{expected}"))
}

fn settled(text: &str) -> String {
    text.replace("\r\n", "\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_knows_whether_it_was_edited() {
        let text = marked("title", "a\nbody", "Overnight-Patch: sha256:1");
        assert!(is_untouched("title", &text));
        assert!(
            is_untouched("title", &text.replace('\n', "\r\n")),
            "a web form writes other line ends"
        );
        assert!(!is_untouched("another", &text));
        assert!(!is_untouched("title", &text.replace("a\nbody", "their body")));
        assert!(!is_untouched("title", "no marker"));
        assert!(!is_untouched("title", &format!("{text}\n\na note below")));
        assert!(is_untouched("title", &format!("{text}\n \n")));
        let held = super::super::own_commits::HeldPatch::of(&unmarked(&text).1.unwrap());
        assert!(held.is("1"));
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line(" a\n b\tc ", 10), "a b c");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }

    #[test]
    fn names_that_git_allows() {
        for good in ["main", "refs/heads/main", "release/1.x", "é", "a@b", "v1_%"] {
            assert!(is_branch_name(good), "{good}");
        }
        for bad in [
            "",
            "refs/heads/",
            "/",
            "a//b",
            "a/",
            "-x",
            "a b",
            "a..b",
            "x.lock",
            "a:b",
            "a^",
            "HEAD",
            ".a",
            "a\n",
            "a@{1}",
        ] {
            assert!(!is_branch_name(bad), "{bad}");
        }
    }

    #[test]
    fn names_of_recipes_and_jobs_become_parts_of_a_branch() {
        for (name, part) in [
            ("fix-clippy", "fix-clippy"),
            ("../x", "x"),
            ("a b@{c", "a-b--c"),
            ("-", "run"),
            ("é", "run"),
        ] {
            assert_eq!(branch_part(name), part, "{name}");
        }
    }
}
