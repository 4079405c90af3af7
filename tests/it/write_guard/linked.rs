//! Files with a hard link outside that cannot become a copy.

use super::{CONFINED, ground};
use overnight::base::grant::Writes;
use overnight::process::{self, SandboxLevel};
use std::os::unix::fs::PermissionsExt;

/// A file that its owner may write but not read. Root can read it, so there it becomes a copy; for an ordinary user it is read-only at
/// `full`, and at `landlock` nothing is started.
#[tokio::test]
async fn a_file_that_cannot_be_copied_is_not_written_outside() {
    for level in CONFINED {
        let ground = ground(level);
        let (inside, outside) = (
            ground.confinement.workspace.join("locked"),
            ground.top.path().join("outside/locked"),
        );
        std::fs::write(&outside, "old\n").unwrap();
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o200)).unwrap();
        std::fs::hard_link(&outside, &inside).unwrap();
        let command = "echo evil >> locked; chmod 600 locked; echo evil >> locked; mv locked away; echo x > made";
        let got = process::run(ground.spawn(command, &Writes::Tree), &ground.confinement).await;
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(ground.read("outside/locked").as_deref(), Some("old\n"), "{level:?}");
        let starts = level == SandboxLevel::Full || rustix::process::geteuid().is_root();
        assert_eq!(ground.read("ws/made").is_some(), starts, "{level:?}");
        match got {
            Ok(got) => assert!(starts && got.undone.is_empty(), "{level:?}: {:?}", got.undone),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.contains("limit:guard_links: locked has a hard link"),
                    "{level:?}: {error}"
                );
            }
        }
    }
}
