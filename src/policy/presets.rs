//! The built-in policies that `extends` names, as policy text. Reads and decides nothing.

/// The names after `builtin:`.
pub const NAMES: &[&str] = &["builtin:read-only", "builtin:edit", "builtin:build"];

/// The toolchains that `sandbox.toolchains` may name.
pub const TOOLCHAINS: &[&str] = &["rust", "node", "python", "go", "java"];

const READ: &str = "
  - { id: 'builtin:read', allow: [list_directory, read_file, read_many_files, glob, grep_search], paths: ['**'] }
  - { id: 'builtin:plan', allow: write_todos }
";

const EDIT: &str = "
  - { id: 'builtin:write', allow: [write_file, replace], paths: ['**'] }
";

/// What build and test commands are piped into or looked at with; each reads inside the workspace only.
const LOOK: &str = "
  - id: 'builtin:look'
    allow: run_shell_command
    commands: [cat, cut, diff, file, find, grep, head, ls, pwd, rg, sed, sort, stat, tail, tr, tree, uniq, wc,
      git blame, git diff, git log, git ls-files, git rev-parse, git show, git status]
";

const RUST: &str = "
  - id: 'builtin:rust'
    allow: run_shell_command
    commands: [cargo b, cargo build, cargo c, cargo check, cargo clippy, cargo doc, cargo fmt, cargo metadata, cargo nextest, cargo t,
      cargo test, cargo tree, rustfmt, 'cargo --version', 'rustc --version']
";

const NODE: &str = "
  - id: 'builtin:node'
    allow: run_shell_command
    commands: [npm test, npm t, npm run build, npm run check, npm run format, npm run lint, npm run test, npm run typecheck, npm ls,
      yarn test, yarn build, yarn lint, yarn run build, yarn run lint, yarn run test, pnpm test, pnpm build, pnpm lint,
      pnpm run build, pnpm run lint, pnpm run test, 'node --test', 'node --version', 'npm --version']
";

const PYTHON: &str = "
  - id: 'builtin:python'
    allow: run_shell_command
    commands: [pytest, 'python -m pytest', 'python3 -m pytest', 'python -m unittest', 'python3 -m unittest', mypy, ruff check, ruff format,
      'python -m compileall', 'python3 -m compileall', 'python -m build', 'python3 -m build', 'python --version', 'python3 --version']
";

const GO: &str = "
  - id: 'builtin:go'
    allow: run_shell_command
    commands: [go build, go test, go vet, go list, go version, gofmt]
";

const JAVA: &str = "
  - id: 'builtin:java'
    allow: run_shell_command
    commands: [mvn compile, mvn package, mvn test, mvn verify, gradle assemble, gradle build, gradle check, gradle test,
      ./mvnw compile, ./mvnw package, ./mvnw test, ./mvnw verify, ./gradlew assemble, ./gradlew build, ./gradlew check, ./gradlew test]
";

/// The text of a preset; `builtin:build` holds the commands of the named toolchains. `None` for an unknown name.
pub fn text(name: &str, toolchains: &[String]) -> Option<String> {
    let mut text = format!("version: 1\nrules:{READ}");
    match name {
        "builtin:read-only" => {}
        "builtin:edit" => text.push_str(EDIT),
        "builtin:build" => {
            text.push_str(EDIT);
            text.push_str(LOOK);
            let blocks = [
                ("rust", RUST),
                ("node", NODE),
                ("python", PYTHON),
                ("go", GO),
                ("java", JAVA),
            ];
            for (_, block) in blocks
                .iter()
                .filter(|(toolchain, _)| toolchains.iter().any(|name| name == toolchain))
            {
                text.push_str(block);
            }
        }
        _ => return None,
    }
    Some(text)
}

#[cfg(test)]
mod tests;
