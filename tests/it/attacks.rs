//! Attacks that once worked, and variants of them, run for real through the program: at both levels of the sandbox, as root and as
//! an ordinary user. What counts is the effect, never the words of an answer. Beside the attacks stand controls: the honest use of the
//! same feature must succeed. The cases are data (`fixtures/attacks/CLASS.yaml`); what needs more than data is in `special`.

pub mod bells;
pub mod ground;
mod places;
mod special;
pub mod table;

macro_rules! classes {
    ($($name:ident: $file:literal,)*) => {
        $(
            #[test]
            fn $name() {
                table::all_of($file);
            }
        )*

        /// No file of cases lies there unread.
        #[test]
        fn every_class_is_played() {
            let mut there: Vec<String> = std::fs::read_dir(super::harness::project().join("fixtures/attacks"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
                .filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned))
                .collect();
            there.sort();
            let mut played = vec![$($file.to_owned()),*];
            played.sort();
            assert_eq!(there, played);
        }
    };
}

classes! {
    bounded_reads_show_no_other_files: "bounded-reads",
    builtins_set_no_names_that_programs_obey: "builtins",
    denied_programs_are_started_by_nobody: "denied-below",
    denied_paths_are_written_by_nobody: "denied-writes",
    front_ends_grant_no_more_than_what_they_start: "front-ends",
    git_obeys_no_configuration_of_the_tree: "git-configuration",
    repositories_are_not_lost: "lost-repositories",
    limits_of_what_is_compared_let_nothing_through: "flood",
    names_do_not_become_options: "names-as-options",
    nested_repositories_give_no_orders: "nested-repositories",
    odd_ways_out: "various",
    paths_that_expand_stay_inside: "built-paths",
    programs_without_a_profile_only_read: "unprofiled-programs",
    protected_and_secret_names: "protected-names",
    recipes_of_the_tree_carry_nothing_away: "recipes-of-the-tree",
    runners_grant_no_more_than_what_is_installed: "runners",
    sed_and_awk_start_nothing: "sed-and-awk",
    servers_and_dry_runs: "servers",
    swapped_directories_lead_nowhere: "swapped-directories",
    system_calls_reach_nothing_outside: "kernel-reach",
    the_directory_of_the_run_is_out_of_reach: "run-directory",
    values_in_commands_of_a_recipe_run_nothing: "values-in-commands",
}
