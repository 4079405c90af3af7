//! Brace expansion: `{a,b}` and `{1..3}` in a word that is already split into units.

use super::CommandRefusal;
use super::unit::Unit;

/// The most words into which the braces of one word may expand.
const MAX_WORDS: usize = 64;

/// The words into which bash expands one word, in its order.
///
/// # Errors
/// `limit:braces` for more than 64 words.
pub fn expand(units: Vec<Unit>) -> Result<Vec<Vec<Unit>>, CommandRefusal> {
    let mut done = Vec::new();
    let mut open = vec![units];
    let mut steps = 0_usize;
    while let Some(next) = open.pop() {
        steps += 1;
        if done.len() + open.len() > MAX_WORDS || steps > MAX_WORDS * 16 {
            return Err(CommandRefusal::new(
                "limit:braces",
                "the braces expand to more than 64 words",
                "write the words out",
            ));
        }
        match first_group(&next) {
            None => done.push(next),
            Some((start, end, choices)) => {
                // Pushed in reverse, so that the stack returns them in order.
                for choice in choices.into_iter().rev() {
                    let mut word = next[..start].to_vec();
                    word.extend(choice);
                    word.extend_from_slice(&next[end + 1..]);
                    open.push(word);
                }
            }
        }
    }
    Ok(done)
}

fn plain(unit: &Unit) -> Option<char> {
    match unit {
        Unit::Char { value, quoted: false } => Some(*value),
        _ => None,
    }
}

/// The leftmost brace expression that expands: its position, and its alternatives.
fn first_group(units: &[Unit]) -> Option<(usize, usize, Vec<Vec<Unit>>)> {
    (0..units.len())
        .filter(|&start| plain(&units[start]) == Some('{'))
        .find_map(|start| {
            let (end, commas) = matching(units, start)?;
            let choices = if commas.is_empty() {
                sequence(&units[start + 1..end])?
            } else {
                let mut edges = vec![start];
                edges.extend(commas);
                edges.push(end);
                edges
                    .windows(2)
                    .map(|pair| units[pair[0] + 1..pair[1]].to_vec())
                    .collect()
            };
            Some((start, end, choices))
        })
}

/// The closing brace and the commas at the same level.
fn matching(units: &[Unit], start: usize) -> Option<(usize, Vec<usize>)> {
    let mut depth = 0_usize;
    let mut commas = Vec::new();
    for (at, unit) in units.iter().enumerate().skip(start) {
        match plain(unit) {
            Some('{') => depth += 1,
            Some('}') if depth == 1 => return Some((at, commas)),
            Some('}') => depth -= 1,
            Some(',') if depth == 1 => commas.push(at),
            _ => {}
        }
    }
    None
}

/// `1..5`, `a..e`, with an optional step. Sequences that bash may interpret differently (leading zeros, signs,
/// characters other than letters) become one unknown word.
fn sequence(units: &[Unit]) -> Option<Vec<Vec<Unit>>> {
    let text: Option<String> = units.iter().map(plain).collect();
    let text = text?;
    let parts: Vec<&str> = text.split("..").collect();
    let (&first, &last, step) = match parts.as_slice() {
        [first, last] => (first, last, 1),
        [first, last, step] => match step.parse::<u32>() {
            Ok(step) if step > 0 => (first, last, u64::from(step)),
            _ => return Some(vec![vec![Unit::Expansion]]),
        },
        _ => return None,
    };
    let plain_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number.to_string() == text);
    let lower = |text: &str| text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let upper = |text: &str| text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_uppercase());
    let letters = (lower(first) && lower(last)) || (upper(first) && upper(last));
    let numbers = plain_number(first) && plain_number(last);
    if !letters && !numbers {
        return Some(vec![vec![Unit::Expansion]]);
    }
    let (low, high) = if letters {
        (
            i64::from(u32::from(first.chars().next()?)),
            i64::from(u32::from(last.chars().next()?)),
        )
    } else {
        (first.parse().ok()?, last.parse().ok()?)
    };
    let count = low.abs_diff(high) / step;
    // One more than the limit is enough to be refused.
    let made = (0..=count.min(MAX_WORDS as u64 + 1)).map(|index| {
        let offset = i64::try_from(index * step).unwrap_or(0);
        let value = if low <= high { low + offset } else { low - offset };
        let text = if letters {
            u32::try_from(value)
                .ok()
                .and_then(char::from_u32)
                .map(String::from)
                .unwrap_or_default()
        } else {
            value.to_string()
        };
        text.chars().map(|value| Unit::Char { value, quoted: false }).collect()
    });
    Some(made.collect())
}

#[cfg(test)]
mod tests {
    use super::super::unit::Unit;
    use super::super::units::split;
    use super::expand;

    fn words(source: &str) -> Vec<String> {
        let text = |unit: &Unit| match unit {
            Unit::Char { value, .. } => Some(*value),
            _ => None,
        };
        let all = expand(split(source).unwrap()).unwrap();
        all.iter().map(|word| word.iter().filter_map(text).collect()).collect()
    }

    #[test]
    fn braces_make_the_words_that_bash_makes() {
        assert_eq!(words("a{b,c}d"), ["abd", "acd"]);
        assert_eq!(words("{a,{b,c}}{1,2}"), ["a1", "a2", "b1", "b2", "c1", "c2"]);
        assert_eq!(words("{1..3}"), ["1", "2", "3"]);
        assert_eq!(words("{c..a}"), ["c", "b", "a"]);
        assert_eq!(words("{a}"), ["{a}"]);
        assert_eq!(words("'{a,b}'"), ["{a,b}"]);
        assert_eq!(words("{a,b"), ["{a,b"]);
        assert_eq!(words("x{,.bak}"), ["x", "x.bak"]);
    }

    #[test]
    fn too_many_words_are_refused() {
        assert!(expand(split("{1..1000000}").unwrap()).is_err());
        assert!(expand(split("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}").unwrap()).is_err());
    }
}
