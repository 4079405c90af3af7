//! Tests of rendering: values stay values, undefined names are reported, commands are quoted.

use super::*;
use serde_json::json;

fn scope_of<T>(use_it: impl FnOnce(&TemplateScope<'_>) -> T) -> T {
    let values = BTreeMap::from([
        ("package".to_owned(), json!("a b")),
        ("n".to_owned(), json!(3)),
        ("x".to_owned(), json!("{{ package }}\n- y: 'z'")),
        ("list".to_owned(), json!(["a b", "c"])),
    ]);
    let input = json!({"title": "T <b> & \"q\"", "labels": ["one", "two"], "body": null});
    let steps = StepOutputs::from([
        ("lint".to_owned(), StepValues::of_output("warning: x")),
        ("fix-it".to_owned(), StepValues::of_output("$(x)")),
    ]);
    use_it(&TemplateScope {
        values: &values,
        input: Some(&input),
        steps: &steps,
    })
}

/// A list that holds another one several times is small in memory, and as text as long as one likes.
#[test]
fn a_list_of_lists_is_not_written_out_for_ever() {
    let level = "{% set x = [x, x, x, x, x, x, x, x] %}";
    let text = format!("{{% set x = [1] %}}{}{{{{ x }}}}", level.repeat(12));
    scope_of(|scope| {
        for refused in [render(&text, scope), render_command(&format!("echo {text}"), scope)] {
            let refused = refused.unwrap_err();
            assert!(refused.message.contains("renders more than"), "{refused}");
        }
        let short = format!("{{% set x = [1] %}}{}{{{{ x }}}}", level.repeat(2));
        assert_eq!(render(&short, scope).unwrap().matches("[1]").count(), 64);
    });
    assert_eq!(check_words(&text), Ok(()));
}

#[test]
fn values_are_put_in_as_they_are() {
    let table = [
        ("a {{ package }} b\n", "a a b b\n"),
        ("{{ x }}", "{{ package }}\n- y: 'z'"),
        ("{{ input.title }}", "T <b> & \"q\""),
        ("{{ input.labels }}", "[\"one\",\"two\"]"),
        ("{{ input.body }}", "null"),
        ("{{ steps.lint.output }}", "warning: x"),
        ("{{ steps[\"fix-it\"].output }}", "$(x)"),
        ("{% for l in input.labels %}- {{ l }}\n{% endfor %}", "- one\n- two\n"),
        ("{% if n > 2 %}many{% endif %}", "many"),
        ("{{ package | upper }} {{ nothing | default('none') }}", "A B none"),
        ("{% raw %}${{ github.x }}{% endraw %}", "${{ github.x }}"),
        ("{{ package | raw }}", "a b"),
        ("no tags } { # {#x} ${#list} #}", "no tags } { # {#x} ${#list} #}"),
        ("a{#-- b --#}c", "ac"),
    ];
    scope_of(|scope| {
        for (text, expected) in table {
            assert_eq!(render(text, scope).as_deref(), Ok(expected), "{text}");
        }
    });
}

#[test]
fn errors_name_the_place() {
    scope_of(|scope| {
        for (text, word) in [
            ("ok {{ missing }}", "missing"),
            ("{{ input.absent }}", "absent"),
            ("{{ steps.nope.output }}", "nope"),
            ("{{ package | nofilter }}", "nofilter"),
        ] {
            let error = render(text, scope).unwrap_err();
            let range = error.range.clone().unwrap_or(0..text.len());
            assert!(text[range].contains(word), "{text}: {error:?}");
        }
        for text in [
            "{{ a",
            "{% if %}",
            "{% include 'x' %}",
            "{% import 'x' as y %}",
            "{{ debug() }}",
        ] {
            assert!(render(text, scope).is_err(), "{text}");
        }
        let endless = "{% for i in range(9000) %}{% for j in range(9000) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, scope).unwrap_err().message.contains("too many steps"));
        let long = "{% set v = 'abcdefghij' * 100000 %}{{ v }}{{ v }}{{ v }}{{ v }}{{ v }}{{ v }}{{ v }}{{ v }}";
        assert!(render(long, scope).is_err());
    });
}

#[test]
fn commands_are_quoted() {
    let table = [
        ("ls {{ package }}", "ls 'a b'"),
        ("ls \"{{ package }}\"", "ls \"a b\""),
        ("ls {{ package | raw }}", "ls a b"),
        ("ls {{ package | upper }}", "ls 'A B'"),
        ("ls {{ package | safe }}", "ls 'a b'"),
        ("echo {{ input.title | e }} {{ input.title | tojson }}", ""),
        ("ls {{ list }}", "ls 'a b' c"),
        ("ls {{ list | join(' ') }}", "ls 'a b c'"),
        ("echo {{ steps['fix-it'].output }}", "echo '$(x)'"),
        ("{% set v %}<{{ package }}>{% endset %}echo {{ v }}", "echo '<a b>'"),
        ("{% filter upper %}ls {{ package }}{% endfilter %}", "'LS a b'"),
        (
            "head -n {{ n }}{% if n > 2 %} {{ x }}{% endif %}",
            "head -n 3 '{{ package }}\n- y: '\\''z'\\'''",
        ),
    ];
    scope_of(|scope| {
        for (text, expected) in table {
            let shown = render_command(text, scope).unwrap();
            if expected.is_empty() {
                assert!(shown.matches('\'').count() >= 4, "{shown}");
            } else {
                assert_eq!(shown, expected, "{text}");
            }
        }
        for text in [
            "echo $(cat {{ package }})",
            "cat <<E\n{{ package }}\nE",
            "echo \u{f5a0}0\u{f5a1}",
        ] {
            assert!(render_command(text, scope).is_err(), "{text}");
        }
    });
}

#[test]
fn the_place_of_a_value_is_checked_without_values() {
    for text in [
        "ls {{ draw }} \"{{ x }}\"",
        "echo $(ls {{ x | raw }})",
        "echo $(docker inspect {% raw %}{{.Id}}{% endraw %})",
        "{% if x %}ls '{{ x }}'{% endif %}",
    ] {
        assert_eq!(check_command(text), Ok(()), "{text}");
    }
    for text in [
        "echo $(ls {{ draw }})",
        "ls # {{ x }}",
        "{% raw %}{{ a }}{% endraw %} `{{ x }}`",
    ] {
        assert!(check_command(text).is_err(), "{text}");
    }
}

#[test]
fn names_are_found_with_their_place() {
    let text = "{% for l in input.labels %}{{ l }} {{ package }}{% endfor %} package {{ steps.lint.output }} {{ steps[\"a-b\"].output }}";
    let found = names(text).unwrap();
    let shown: Vec<String> = found.iter().map(|name| name.path.join(".")).collect();
    assert_eq!(shown, ["input.labels", "package", "steps.lint.output", "steps.a-b"]);
    assert_eq!(&text[found[1].range.clone()], "package");
    assert!(text[..found[1].range.start].ends_with("{{ "));
    assert!(names("{{ a").is_err());
}

proptest::proptest! {
    #[test]
    fn a_value_never_becomes_a_template(value in "[ -~\n]{0,40}") {
        let values = BTreeMap::from([("x".to_owned(), json!(value))]);
        let steps = StepOutputs::new();
        let scope = TemplateScope { values: &values, input: None, steps: &steps };
        proptest::prop_assert_eq!(render("<{{ x }}>", &scope).unwrap(), format!("<{value}>"));
    }
}

#[test]
fn the_authors_words_are_told_from_values() {
    scope_of(|scope| {
        for (text, author) in [
            ("see @a.md and {{ package }}", "see @a.md and \0"),
            ("@{{ package }}.md", "@\0.md"),
            ("{% for x in list %}@b {{ x }};{% endfor %}", "@b \0;@b \0;"),
            ("{% if package %}@c{% else %}@d{% endif %}", "@c"),
            ("{% set v %}@e{% endset %}{{ v }}", "\0"),
            ("{{ package | raw }}", "a b"),
            ("{{ package | raw | upper }}", "\0"),
            ("{% filter upper %}@f {{ package }}{% endfilter %}", "\0"),
        ] {
            assert_eq!(render_author(text, scope).unwrap(), author, "{text}");
        }
        assert!(render_author("{{ missing }}", scope).is_err());
    });
}

#[test]
fn conditions_are_expressions_over_values_input_and_steps() {
    scope_of(|scope| {
        for (text, holds) in [
            ("steps.lint.output", true),
            ("steps.lint.status == 'passed'", true),
            ("steps.lint.exit_code is none", true),
            ("steps['fix-it'].output == 'x' or 'one' in input.labels", true),
            ("input.body", false),
            ("not input.title", false),
            ("list | length > 2", false),
        ] {
            assert_eq!(condition(text, scope), Ok(holds), "{text}");
        }
        for text in [
            "nowhere",
            "steps.nope.output",
            "input.title >",
            "input.title - 1",
            "{{ list }}",
            "list | nofilter",
        ] {
            assert!(condition(text, scope).is_err(), "{text}");
        }
    });
    let names = condition_names("steps.lint.exit_code != 0 and package == input.title").unwrap();
    let shown: Vec<(String, usize)> = names
        .iter()
        .map(|name| (name.path.join("."), name.range.start))
        .collect();
    assert_eq!(
        shown,
        [
            ("steps.lint.exit_code".to_owned(), 0),
            ("package".to_owned(), 30),
            ("input.title".to_owned(), 41)
        ]
    );
}
