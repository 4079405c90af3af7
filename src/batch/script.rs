//! Generates job files for CI engines and schedulers that run shards: an array or matrix job and a merge job that
//! depends on it. Pure.

use crate::base::quote::shell_word;
use serde_json::json;
use std::path::{Component, Path};

/// A CI engine or scheduler for which a job file can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardEngine {
    Slurm,
    Kubernetes,
    GnuParallel,
    Gitlab,
    Github,
    Buildkite,
    Hyperqueue,
}

impl ShardEngine {
    /// All engines.
    pub const ALL: [ShardEngine; 7] = [
        Self::Slurm,
        Self::Kubernetes,
        Self::GnuParallel,
        Self::Gitlab,
        Self::Github,
        Self::Buildkite,
        Self::Hyperqueue,
    ];

    /// The value of the command-line option.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Kubernetes => "kubernetes",
            Self::GnuParallel => "gnu-parallel",
            Self::Gitlab => "gitlab",
            Self::Github => "github",
            Self::Buildkite => "buildkite",
            Self::Hyperqueue => "hyperqueue",
        }
    }

    /// Whether the engine carries the bundles to the merge as artefacts of its jobs. Elsewhere all tasks see one directory.
    fn takes_artefacts(self) -> bool {
        match self {
            Self::Gitlab | Self::Github | Self::Buildkite => true,
            Self::Slurm | Self::Kubernetes | Self::GnuParallel | Self::Hyperqueue => false,
        }
    }

    /// The engine's limit of shards in one file; `None` without a limit.
    pub fn most_shards(self) -> Option<u64> {
        match self {
            // MaxArraySize is 1001 unless the site raised it, and ids must be lower.
            Self::Slurm => Some(1_000),
            Self::Gitlab => Some(200),
            Self::Github => Some(256),
            Self::Kubernetes => Some(10_000),
            Self::Buildkite => Some(500),
            Self::GnuParallel | Self::Hyperqueue => None,
        }
    }
}

/// Inputs of a job file.
#[derive(Clone, Debug)]
pub struct ScriptSpec {
    pub manifest: String,
    pub out: String,
    pub shards: u64,
    /// Further arguments of `overnight batch`.
    pub more: Vec<String>,
}

impl ScriptSpec {
    /// The command of one shard; `index` is shell text that expands to its number, from 1.
    fn shard(&self, index: &str) -> String {
        let more: String = self.more.iter().map(|word| format!(" {}", shell_word(word))).collect();
        format!(
            "overnight batch {} --shard \"{index}/{n}\" --out {}/\"{index}-of-{n}\"{more}",
            shell_word(&self.manifest),
            shell_word(&format!("{}/shards", self.out)),
            n = self.shards
        )
    }

    /// The command of the merge.
    fn merge(&self) -> String {
        let shards = shell_word(&format!("{}/shards", self.out));
        format!(
            "overnight merge {shards}/*-of-{} --out {}",
            self.shards,
            shell_word(&self.out)
        )
    }
}

/// Why no job file of this engine could work.
pub fn problem(engine: ShardEngine, spec: &ScriptSpec) -> Option<String> {
    if spec.manifest == "-" {
        return Some(
            "the manifest is read from stdin, which the tasks do not have: name a file that they can read".to_owned(),
        );
    }
    let is_inside = Path::new(&spec.out)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (engine.takes_artefacts() && !is_inside).then(|| {
        format!(
            "--out {}: {} carries files from the shards to the merge only below the directory of the checkout: name a relative \
             directory without `..`",
            spec.out,
            engine.as_str()
        )
    })
}

/// The job file. Its first comment says how to submit it.
pub fn script(engine: ShardEngine, spec: &ScriptSpec) -> String {
    match engine {
        ShardEngine::Slurm => slurm(spec),
        ShardEngine::Kubernetes => kubernetes(spec),
        ShardEngine::GnuParallel => gnu_parallel(spec),
        ShardEngine::Gitlab => gitlab(spec),
        ShardEngine::Github => github(spec),
        ShardEngine::Buildkite => buildkite(spec),
        ShardEngine::Hyperqueue => hyperqueue(spec),
    }
}

fn slurm(spec: &ScriptSpec) -> String {
    format!(
        r#"#!/bin/bash
# Start: bash FILE [options of sbatch]. Submits an array of {n} shards and a merge that runs when all have ended, and prints both
# ids. All nodes must see the directories of the manifest and of --out. A requeued task continues its shard.
set -euo pipefail
mkdir -p {logs}
array=$(sbatch --parsable "$@" --array=1-{n} --job-name=overnight --requeue --open-mode=append --signal=B:TERM@60 \
  --output={logs}/shard-%a.log <<'TASK'
#!/bin/bash
# Not by SLURM_ARRAY_TASK_COUNT: a single task that is submitted again must stay the same shard.
exec {shard}
TASK
)
array=${{array%%;*}}
merge=$(sbatch --parsable "$@" --dependency=afterany:"$array" --job-name=overnight-merge --open-mode=append \
  --output={logs}/merge.log <<'TASK'
#!/bin/bash
exec {merge}
TASK
)
echo "array $array"
echo "merge ${{merge%%;*}}"
"#,
        n = spec.shards,
        logs = shell_word(&format!("{}/logs", spec.out)),
        shard = spec.shard("$SLURM_ARRAY_TASK_ID"),
        merge = spec.merge(),
    )
}

fn gnu_parallel(spec: &ScriptSpec) -> String {
    format!(
        r#"#!/bin/bash
# Start: bash FILE [options of parallel], such as -j 4, or --sshloginfile hosts if all hosts see the same directories. Repeat the
# same command to continue: ended shards start no job that is up to date.
set -uo pipefail
mkdir -p {logs}
shard() {{
  {shard}
}}
export -f shard
SHELL=$(command -v bash) parallel --will-cite --env shard --joblog {logs}/joblog "$@" shard ::: $(seq {n})
{merge}
"#,
        n = spec.shards,
        logs = shell_word(&format!("{}/logs", spec.out)),
        shard = spec.shard("$1"),
        merge = spec.merge(),
    )
}

fn gitlab(spec: &ScriptSpec) -> String {
    format!(
        r"# Start: put these jobs into .gitlab-ci.yml, or include this file from it. `overnight` must be on the PATH of the runner.
stages: [overnight, overnight-merge]
overnight:
  stage: overnight
  parallel: {n}
  script:
    - {shard}
  artifacts:
    when: always
    paths: [{shards}]
overnight-merge:
  stage: overnight-merge
  needs: [overnight]
  when: always
  script:
    - {merge}
  artifacts:
    when: always
    paths: [{out}]
    reports:
      junit: {junit}
",
        n = spec.shards,
        shard = json!(spec.shard("$CI_NODE_INDEX")),
        merge = json!(spec.merge()),
        shards = json!(format!("{}/shards/", spec.out)),
        out = json!(format!("{}/", spec.out)),
        junit = json!(format!("{}/junit.xml", spec.out)),
    )
}

fn github(spec: &ScriptSpec) -> String {
    let indexes: Vec<String> = (1..=spec.shards).map(|index| index.to_string()).collect();
    format!(
        r#"# Start: put this file into .github/workflows/ and run it by hand. Keys of model services belong in the
# step `run the shard`, as env: {{ GEMINI_API_KEY: ... }} from the repository's secrets.
name: overnight
on:
  workflow_dispatch:
    inputs:
      source: {{ description: the address of the repository of overnight, required: true, type: string }}
permissions:
  contents: read
jobs:
  shard:
    runs-on: ubuntu-latest
    strategy:
      fail-fast: false
      matrix:
        index: [{indexes}]
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with: {{ persist-credentials: false, fetch-depth: 0 }}
      - name: install overnight
        env: {{ SOURCE: '${{{{ github.event.inputs.source }}}}' }}
        run: cargo install --locked --git "${{SOURCE}}"
      - name: run the shard
        env: {{ INDEX: '${{{{ matrix.index }}}}' }}
        run: {shard}
      - if: always()
        uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0
        with:
          name: shard-${{{{ matrix.index }}}}
          path: {shards}
          include-hidden-files: true
  merge:
    needs: shard
    if: always()
    runs-on: ubuntu-latest
    steps:
      - name: install overnight
        env: {{ SOURCE: '${{{{ github.event.inputs.source }}}}' }}
        run: cargo install --locked --git "${{SOURCE}}"
      - uses: actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1
        with:
          pattern: shard-*
          merge-multiple: true
          path: {shards}
      - run: {merge}
      - if: always()
        run: cat {summary} >> "${{GITHUB_STEP_SUMMARY}}"
      - if: always()
        uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0
        with:
          name: overnight
          path: {out}
          include-hidden-files: true
"#,
        indexes = indexes.join(", "),
        shard = json!(spec.shard("${INDEX}")),
        merge = json!(spec.merge()),
        shards = json!(format!("{}/shards/", spec.out)),
        out = json!(format!("{}/", spec.out)),
        summary = shell_word(&format!("{}/summary.md", spec.out)),
    )
}

fn buildkite(spec: &ScriptSpec) -> String {
    // Buildkite expands variables when a pipeline is uploaded, so variables of the step are written with two dollar
    // signs.
    let shard = format!(
        "{} ; code=$$?; buildkite-agent artifact upload {}; exit $$code",
        spec.shard("$$((BUILDKITE_PARALLEL_JOB + 1))"),
        shell_word(&format!("{}/shards/**/*", spec.out))
    );
    let merge = format!(
        "buildkite-agent artifact download {} . ; {}",
        shell_word(&format!("{}/shards/**/*", spec.out)),
        spec.merge()
    );
    format!(
        r"# Start: buildkite-agent pipeline upload FILE. `overnight` must be on the PATH of the agents.
steps:
  - label: overnight
    key: overnight
    parallelism: {n}
    command: {shard}
  - label: overnight merge
    depends_on: overnight
    allow_dependency_failure: true
    command: {merge}
    artifact_paths: {out}
",
        n = spec.shards,
        shard = json!(shard),
        merge = json!(merge),
        out = json!(format!("{}/*", spec.out)),
    )
}

fn kubernetes(spec: &ScriptSpec) -> String {
    let shard = spec.shard("$((JOB_COMPLETION_INDEX + 1))");
    let seals = shell_word(&format!("{}/shards", spec.out));
    let wait = format!(
        "until [ \"$(ls {seals}/*-of-{}/bundle.json 2>/dev/null | wc -l)\" -ge {} ]; do sleep 5; done",
        spec.shards, spec.shards
    );
    let container = |name: &str, command: &str| {
        json!({
            "name": name,
            "image": "overnight:latest",
            "command": ["sh", "-c", command],
            "workingDir": "/work",
            "envFrom": [{"secretRef": {"name": "overnight-keys", "optional": true}}],
            "resources": {
                "requests": {"cpu": "1", "memory": "512Mi"},
                "limits": {"memory": "2Gi"}
            },
            "volumeMounts": [{"name": "work", "mountPath": "/work"}]
        })
    };
    let pod = |containers: serde_json::Value, before: serde_json::Value| {
        json!({
            "spec": {
                "restartPolicy": "Never",
                "initContainers": before,
                "containers": containers,
                "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "overnight-work"}}]
            }
        })
    };
    let array = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "overnight-shards"},
        "spec": {
            "completions": spec.shards,
            "parallelism": spec.shards.min(16),
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 3,
            "podFailurePolicy": {"rules": [
                // A pod that was evicted or preempted is restarted elsewhere.
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                // Running the shard again does not help jobs that failed; only failures of the machine are retried.
                {"action": "FailIndex", "onExitCodes": {
                    "containerName": "shard", "operator": "NotIn", "values": [0, 8, 9, 70, 137, 143]
                }}
            ]},
            "template": pod(json!([container("shard", &format!("exec {shard}"))]), json!([]))
        }
    });
    let merge = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "overnight-merge"},
        "spec": {
            "backoffLimit": 0,
            // The merge must not wait forever for a lost shard; the existing bundles can then be merged by hand.
            "activeDeadlineSeconds": 86_400,
            "template": pod(json!([container("merge", &format!("exec {}", spec.merge()))]), json!([container("wait", &wait)]))
        }
    });
    format!(
        "# Start: kubectl apply -f FILE. It needs an image with `overnight`, the claim `overnight-work` (ReadWriteMany, with the manifest\n\
         # in it, mounted at /work), and the secret `overnight-keys` with the keys of the model service. A lost pod is replaced.\n\
         {}---\n{}",
        yaml(&array, 0),
        yaml(&merge, 0)
    )
}

/// JSON as block-style YAML; strings stay JSON strings, which YAML accepts.
fn yaml(value: &serde_json::Value, depth: usize) -> String {
    let pad = "  ".repeat(depth);
    match value {
        serde_json::Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                serde_json::Value::Object(inner) if !inner.is_empty() => {
                    format!("{pad}{key}:\n{}", yaml(value, depth + 1))
                }
                serde_json::Value::Array(items) if items.iter().any(serde_json::Value::is_object) => {
                    format!("{pad}{key}:\n{}", yaml(value, depth + 1))
                }
                value => format!("{pad}{key}: {value}\n"),
            })
            .collect(),
        serde_json::Value::Array(items) => items
            .iter()
            .map(|item| {
                let inner = yaml(item, depth + 1);
                let at = (2 * (depth + 1)).min(inner.len());
                format!("{pad}- {}", inner.get(at..).unwrap_or_default())
            })
            .collect(),
        value => format!("{pad}{value}\n"),
    }
}

fn hyperqueue(spec: &ScriptSpec) -> String {
    let text = |text: &str| json!(text).to_string();
    let mut file = format!(
        "# Start: hq job submit-file FILE, with `overnight` on the PATH of the workers. {} shards, then a merge. A shard counts as done\n\
         # when its bundle is complete, even if jobs failed, so that the merge runs.\nname = \"overnight\"\n",
        spec.shards
    );
    for index in 1..=spec.shards {
        let sealed = shell_word(&format!("{}/shards/{index}-of-{}/bundle.json", spec.out, spec.shards));
        let command = format!("{} ; test -f {sealed}", spec.shard(&index.to_string()));
        file.push_str(&format!(
            "\n[[task]]\nid = {index}\ncommand = [\"sh\", \"-c\", {}]\n",
            text(&command)
        ));
    }
    let deps: Vec<String> = (1..=spec.shards).map(|index| index.to_string()).collect();
    file.push_str(&format!(
        "\n[[task]]\nid = {}\ncommand = [\"sh\", \"-c\", {}]\ndeps = [{}]\n",
        spec.shards + 1,
        text(&spec.merge()),
        deps.join(", ")
    ));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(manifest: &str) -> ScriptSpec {
        ScriptSpec {
            manifest: manifest.to_owned(),
            out: "out dir".to_owned(),
            shards: 3,
            more: vec!["--jobs".to_owned(), "2".to_owned()],
        }
    }

    #[test]
    fn every_file_names_shard_merge_and_how_to_start() {
        for engine in ShardEngine::ALL {
            let text = script(engine, &spec("fleet.yaml"));
            assert!(
                text.lines().take(2).any(|line| line.starts_with("# Start: ")),
                "{}",
                engine.as_str()
            );
            assert!(
                text.contains("overnight batch fleet.yaml") && text.contains("overnight merge"),
                "{text}"
            );
        }
    }

    #[test]
    fn files_that_could_not_work_are_refused() {
        let with = |manifest: &str, out: &str| ScriptSpec {
            manifest: manifest.to_owned(),
            out: out.to_owned(),
            ..spec("")
        };
        for engine in ShardEngine::ALL {
            let refused = |manifest: &str, out: &str| problem(engine, &with(manifest, out)).is_some();
            assert!(
                refused("-", "o") && !refused("m.yaml", "o/p") && !refused("./-", "./o"),
                "{engine:?}"
            );
            for out in ["/abs/o", "../o", "a/../../o"] {
                assert_eq!(refused("m.yaml", out), engine.takes_artefacts(), "{engine:?} {out}");
            }
        }
    }

    #[test]
    fn names_cannot_become_commands() {
        assert_eq!(shell_word("a'; rm -rf /"), r"'a'\''; rm -rf /'");
        let text = script(ShardEngine::Slurm, &spec("$(touch x).yaml"));
        assert!(text.contains("'$(touch x).yaml'"));
    }
}
