//! Tests of the price table.

use super::*;

fn usage(input: u64, cached: u64, cache_write: u64, output: u64) -> Usage {
    Usage {
        input,
        cached,
        cache_write,
        output,
        reasoning: 0,
        estimated: false,
    }
}

#[test]
fn the_table_is_readable_and_sorted() {
    assert!(TABLE.len() > 60);
    assert!(TABLE.windows(2).all(|pair| pair[0].model < pair[1].model));
    for row in TABLE.iter() {
        let price = row.price.unwrap();
        assert!(price.input > 0.0 && price.output >= price.input, "{}", row.model);
        assert!(price.cached.is_none_or(|cached| cached <= price.input), "{}", row.model);
    }
}

#[test]
fn variants_are_the_same_model_and_versions_are_not() {
    let name = |id: &str| known(id).map(|row| row.model.as_str());
    assert_eq!(name("gemini/gemini-2.5-pro"), Some("gemini/gemini-2.5-pro"));
    assert_eq!(
        name("gemini/gemini-2.5-pro-preview-06-05"),
        Some("gemini/gemini-2.5-pro")
    );
    assert_eq!(
        name("gemini/gemini-2.5-flash-lite-001"),
        Some("gemini/gemini-2.5-flash-lite")
    );
    assert_eq!(name("openai/gpt-5-2025-08-07"), Some("openai/gpt-5"));
    assert_eq!(name("openai-responses/gpt-5"), Some("openai/gpt-5"));
    assert_eq!(
        name("anthropic/claude-sonnet-4-20250514"),
        Some("anthropic/claude-sonnet-4")
    );
    assert_eq!(
        name("anthropic/claude-sonnet-4-5-20250929"),
        Some("anthropic/claude-sonnet-4-5")
    );
    assert_eq!(name("anthropic/claude-sonnet-4-99"), None);
    assert_eq!(name("openai/gpt-5-unheard-of"), None);
    assert_eq!(name("openai/qwen3"), None);
}

#[test]
fn cost_counts_each_kind_of_token_at_its_own_price() {
    let table = Pricing::with(
        r#"[{"model": "openai/qwen3", "price": {"input": 2, "cached": 0.5, "cache_write": 2.5, "output": 8},
             "long": {"above": 1000, "price": {"input": 4, "output": 16}}}]"#,
    )
    .unwrap();
    let cost = |usage| table.cost_micros("openai/qwen3", &usage);
    assert_eq!(cost(usage(100, 0, 0, 10)), Some(280));
    assert_eq!(cost(usage(100, 40, 20, 0)), Some(80 + 20 + 50));
    assert_eq!(cost(usage(1, 1, 0, 0)), Some(1));
    assert_eq!(cost(usage(0, 0, 0, 0)), Some(0));
    assert_eq!(cost(usage(2_000, 1_000, 0, 1)), Some(8_016));
    assert_eq!(table.cost_micros("openai/unknown", &usage(1, 0, 0, 1)), None);
    assert!(table.cost_micros("gemini/gemini-2.5-pro", &usage(1, 0, 0, 1)).is_some());
}

#[test]
fn a_users_rows_go_first_and_mistakes_have_a_place() {
    let table = Pricing::with(r#"[{"model": "gemini/gemini-2.5-pro", "price": {"input": 1, "output": 1}}]"#).unwrap();
    assert_eq!(table.cost_micros("gemini/gemini-2.5-pro", &usage(5, 0, 0, 0)), Some(5));
    let error = Pricing::with(r#"[{"model": "a/b", "prize": 1}]"#).unwrap_err();
    assert!(error.contains("prize") && error.contains("line 1"), "{error}");
}
