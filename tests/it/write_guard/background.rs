//! Commands that live on while others are compared.

use super::{CONFINED, ground};
use overnight::base::grant::Writes;
use overnight::base::ids::CallId;
use overnight::process::{self, Network, SandboxLevel};
use std::time::Duration;

/// A background command swaps a directory with a link to a place outside while what another one changed is put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_directory_leads_nothing_outside() {
    for level in CONFINED {
        let ground = ground(level);
        std::fs::create_dir(ground.confinement.workspace.join("d")).unwrap();
        let out = ground.top.path().join("outside");
        std::fs::write(out.join(".npmrc"), "mine\n").unwrap();
        let swap = "import ctypes,os\nl=ctypes.CDLL(None)\nos.symlink(\"TOP/outside\", \"l\")\nopen(\"ready\",\"w\")\nwhile True: l.renameat2(-100, b\"d\", -100, b\"l\", 2)\n";
        let swap = swap.replace("TOP", &ground.top.path().display().to_string());
        let jobs = process::jobs::Jobs::default();
        let command = format!("/usr/bin/python3 -c '{swap}'");
        let delay = Duration::from_millis(300);
        let started = jobs
            .start(
                (&CallId::nth(1), "swap"),
                ground.spawn(&command, &Writes::Tree),
                &ground.confinement,
                delay,
            )
            .await
            .unwrap();
        assert_eq!(started.end, None, "{level:?}: {}", started.output);
        for _ in 0..5 {
            ground
                .run(
                    "for n in 1 2 3 4 5 6 7 8; do mkdir -p d/$n; echo evil > d/$n/.npmrc; echo evil > d/.npmrc; done 2>/dev/null; true",
                    &Writes::Tree,
                )
                .await;
        }
        assert!(jobs.any_running(), "it was stopped only for a moment");
        jobs.kill_all().await;
        let left: Vec<_> = std::fs::read_dir(&out)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(left.len(), 2, "{level:?}: {left:?}");
        assert_eq!(ground.read("outside/.npmrc").as_deref(), Some("mine\n"), "{level:?}");
        assert_eq!(ground.read("outside/secret").as_deref(), Some("old\n"), "{level:?}");
    }
}

/// A frozen command does nothing until it is let go.
#[tokio::test]
async fn background_commands_can_be_stopped() {
    for level in [SandboxLevel::Full, SandboxLevel::Landlock, SandboxLevel::None] {
        let mut ground = ground(level);
        if level == SandboxLevel::None {
            ground.confinement.network = Network::Open;
        }
        let jobs = process::jobs::Jobs::default();
        let count = "while true; do echo x >> count; done";
        let delay = Duration::from_millis(200);
        jobs.start(
            (&CallId::nth(1), "count"),
            ground.spawn(count, &Writes::Tree),
            &ground.confinement,
            delay,
        )
        .await
        .unwrap();
        let size = || {
            std::fs::metadata(ground.confinement.workspace.join("count"))
                .unwrap()
                .len()
        };
        let frozen = jobs.freeze();
        assert!(frozen.all(), "{level:?}");
        let before = size();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(size(), before, "{level:?}");
        drop(frozen);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(size() > before, "{level:?}");
        assert_eq!(jobs.kill_all().await, 1);
    }
}
