//! Checks that the table names only what exists, and that claims are judged as they are meant.

use std::collections::BTreeSet;

use super::{Claim, Series, all, page};
use crate::{catalogue, workload::Options};

fn series(curves: &[(&'static str, &[(f64, f64)])]) -> Series {
    Series { curves: curves.iter().map(|(id, points)| (*id, *id, points.to_vec())).collect() }
}

#[test]
fn every_figure_names_a_workload_and_implementations_that_exist() {
    let mut ids = BTreeSet::new();
    for figure in all() {
        assert!(ids.insert(figure.id), "{} twice", figure.id);
        let workload = catalogue::find(figure.workload).expect(figure.id);
        let known: Vec<_> = (workload.impls)().iter().map(|about| about.name).collect();
        for curve in figure.curves {
            let names = [Some(curve.implementation), curve.less];
            let is_known = |name: &&str| known.contains(name);
            assert!(names.iter().flatten().all(is_known), "{}: {}", figure.id, curve.name);
        }
        let groups = (workload.groups)(&Options::default()).expect(figure.id);
        let mut metrics = groups.iter().flat_map(|group| &group.metrics);
        if figure.is_seen() {
            let row = figure.seen_row(figure.curves[0].implementation, 40.0);
            assert_eq!(figure.values(&row)[0], Some(40.0));
            assert!(figure.runs(false).iter().all(|run| run.alone.is_some()), "{}", figure.id);
        } else {
            assert!(metrics.any(|metric| metric.name == figure.metric), "{}", figure.id);
        }
        for finding in figure.findings(&figure.series(&[])) {
            assert_eq!((finding.holds, &*finding.simulated), (None, "not run"), "{}", figure.id);
        }
    }
    assert!(ids.len() >= 14);
}

#[test]
fn claims_speak_of_curves_and_places_that_are_run() {
    for figure in all() {
        let xs: Vec<f64> = figure.runs(false).iter().map(|run| run.x).collect();
        let has = |x: f64| assert!(xs.contains(&x), "{} at {x}", figure.id);
        let known = |name: &str| figure.curves.iter().any(|curve| curve.implementation == name);
        for claim in figure.claims {
            let curves: Vec<&str> = match *claim {
                Claim::Value { curve, x, .. } | Claim::Peak { curve, x, .. } => {
                    has(x);
                    vec![curve]
                }
                Claim::Times { above, below, x, .. } | Claim::Crossing { above, below, x } => {
                    has(x);
                    vec![above, below]
                }
                Claim::Grows { curve, from, to, .. } => {
                    has(from);
                    has(to);
                    vec![curve]
                }
                Claim::Linear { curve, to, .. } => {
                    has(1.0);
                    has(to);
                    vec![curve]
                }
                Claim::NearlyAll { curve, from, .. } => {
                    has(from);
                    vec![curve]
                }
                Claim::Order { curves, .. } => curves.to_vec(),
            };
            assert!(curves.into_iter().all(known), "{}", figure.id);
        }
        let published = figure.curves.iter().flat_map(|curve| curve.published);
        published.for_each(|point| has(point.0));
    }
}

#[test]
fn a_value_is_borne_out_within_a_factor_of_two() {
    let claim = Claim::Value { curve: "a", x: 4.0, published: 100.0 };
    let near = claim.judge(&series(&[("a", &[(4.0, 120.0)])]));
    assert_eq!((near.holds, near.off.map(f64::round)), (Some(true), Some(20.0)));
    assert_eq!(claim.judge(&series(&[("a", &[(4.0, 49.0)])])).holds, Some(false));
    assert_eq!(claim.judge(&series(&[("a", &[(5.0, 100.0)])])).holds, None);
}

#[test]
fn a_ratio_has_to_lie_on_its_side_of_one_and_as_far_away() {
    let times = |published: f64, simulated: f64| {
        let claim = Claim::Times { above: "a", below: "b", x: 4.0, published };
        let finding = claim.judge(&series(&[("a", &[(4.0, simulated)]), ("b", &[(4.0, 1.0)])]));
        let claim = Claim::Grows { curve: "a", from: 1.0, to: 4.0, published };
        let grown = claim.judge(&series(&[("a", &[(1.0, 1.0), (4.0, simulated)])]));
        assert_eq!(finding.holds, grown.holds);
        finding.holds.unwrap()
    };
    assert!(times(1.1, 1.06) && times(1.1, 1.19));
    assert!(!times(1.1, 1.04) && !times(1.1, 0.91) && !times(1.1, 1.25));
    assert!(times(0.5, 0.4) && !times(0.5, 1.2) && !times(0.5, 0.3));
    assert!(times(100.0, 52.0) && !times(100.0, 45.0));
    assert!(times(1.0, 1.04) && times(1.0, 0.97) && !times(1.0, 1.2));
}

#[test]
fn growth_in_words_is_a_share_of_the_cores() {
    let claim = Claim::Linear { curve: "a", to: 40.0, words: "near linear" };
    let grown = |to: f64| claim.judge(&series(&[("a", &[(1.0, 2.0), (40.0, to)])]));
    assert_eq!(grown(70.0).holds, Some(true));
    let short = grown(50.0);
    assert_eq!((short.holds, &*short.published), (Some(false), "near linear"));
    assert_eq!((&*short.simulated, short.off), ("25.0 times, of 40", None));
}

#[test]
fn a_share_in_words_is_nearly_all_at_each_place() {
    let claim = Claim::NearlyAll { curve: "a", from: 6.0, words: "almost all" };
    let judge = |last| claim.judge(&series(&[("a", &[(1.0, 3.0), (6.0, 85.0), (48.0, last)])]));
    assert_eq!(judge(90.0).holds, Some(true));
    let short = judge(70.0);
    assert_eq!((short.holds, &*short.simulated), (Some(false), "70 % or more"));
}

#[test]
fn an_order_that_breaks_once_says_where() {
    let claim = Claim::Order { curves: &["a", "b"], from: 2.0 };
    let curves = series(&[
        ("a", &[(1.0, 0.0), (2.0, 5.0), (3.0, 1.0)]),
        ("b", &[(1.0, 9.0), (2.0, 4.0), (3.0, 2.0)]),
    ]);
    let finding = claim.judge(&curves);
    assert_eq!((finding.holds, &*finding.simulated), (Some(false), "another at 3"));
}

#[test]
fn a_crossing_is_one_order_before_and_the_other_after() {
    let claim = Claim::Crossing { above: "a", below: "b", x: 3.0 };
    let judge = |points: &[(f64, f64)]| {
        let below: Vec<_> = points.iter().map(|point| (point.0, 5.0)).collect();
        let finding = claim.judge(&series(&[("a", points), ("b", &below)]));
        (finding.holds, finding.simulated)
    };
    let at = |values: [f64; 4]| judge(&[1.0, 2.0, 3.0, 4.0].map(|x| (x, values[x as usize - 1])));
    assert_eq!(at([4.0, 4.0, 6.0, 6.0]), (Some(true), "from 3 on".into()));
    assert_eq!(at([4.0, 6.0, 6.0, 6.0]), (Some(false), "from 2 on".into()));
    assert_eq!(at([6.0, 4.0, 6.0, 6.0]), (Some(false), "from 3 on, and at 1".into()));
    assert_eq!(at([6.0, 6.0, 4.0, 6.0]), (Some(false), "from 4 on, and at 1, 2".into()));
    assert_eq!(at([4.0, 4.0, 6.0, 4.0]), (Some(false), "not to the end, and at 3".into()));
    assert_eq!(judge(&[(3.0, 6.0), (4.0, 6.0)]), (None, "from 3 on".into()));
}

#[test]
fn rows_become_curves_and_a_page() {
    let figure = all().find(|figure| figure.id == "k42-4").unwrap();
    let rows = |latency: f64| {
        format!(
            "{{\"bench\":\"machine\"}}\n{{\"impl\":\"atomic\",\"metric\":\"latency\",\
             \"median\":{latency}}}\n{{\"impl\":\"atomic\",\"metric\":\"throughput\",\
             \"median\":1}}\n"
        )
    };
    let simulated = figure.series(&[(1.0, rows(100.0)), (24.0, rows(900.0))]);
    assert_eq!(simulated.at("atomic", 24.0), Some(9.0), "divided by the first point");
    let setting = page::Setting {
        here: "this machine".into(),
        claim: "a claim".into(),
        missing: vec!["caches & more".into()],
        quick: true,
        without: None,
    };
    let shown = page::Shown { figure, simulated, measured: Series::default(), notes: vec![] };
    let page = page::render(&setting, &[shown], None);
    for part in ["a claim", "Validation.", "caches &amp; more", "-25 %", "borne out", "<svg"] {
        assert!(page.contains(part), "{part} is missing");
    }
    for word in ["http:", "https:", "src=", "<script", "<link"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn loop_without_the_write_is_taken_away() {
    let figure = all().find(|figure| figure.id == "oplog-4").unwrap();
    let row = |name: &str, nanos: f64| {
        format!("{{\"impl\":\"{name}\",\"metric\":\"latency\",\"median\":{nanos}}}\n")
    };
    let rows = row("store-cpuid", 110.0) + &row("store-cpuid-private", 10.0) + &row("store", 50.0);
    let series = figure.series(&[(2.0, rows), (6.0, row("store-cpuid", 110.0))]);
    let rounded = |name, x| series.at(name, x).map(f64::round);
    assert_eq!((rounded("store-cpuid", 2.0), rounded("store", 2.0)), (Some(240.0), Some(120.0)));
    assert_eq!(rounded("store-cpuid", 6.0), None, "half a value is none");
}

#[test]
fn fresh_workloads_exist_and_their_errors_have_a_median() {
    use super::fresh::{Compared, cases, list, median};
    for fresh in list() {
        let workload = catalogue::find(fresh.workload).expect(fresh.workload);
        let known = (workload.impls)();
        let name = fresh.implementation;
        assert!(known.iter().any(|about| about.name == name), "{}: {name}", fresh.workload);
    }
    assert!(cases(1).all(|case| case.threads == 1 && case.fresh.beside == 0));
    let case = || cases(2).next().unwrap();
    let rows = "{\"impl\":\"arc\",\"metric\":\"latency\",\"median\":1}\n\
        {\"impl\":\"arc\",\"metric\":\"throughput\",\"median\":8,\"min\":7,\"max\":9}\n";
    let (measured, range) = (8.0, [7.0, 9.0]);
    assert_eq!(case().rate(rows), Some((measured, range)));
    let compared = |simulated| Compared { case: case(), simulated, measured, range };
    let all = [compared(16.0), compared(8.0), compared(4.0)];
    assert_eq!(all.each_ref().map(Compared::off), [-0.5, 0.0, 1.0]);
    assert_eq!(median(&all), Some(0.5));
    assert_eq!(median(&all[..2]), Some(0.25));
    assert!(page::verdict(&all).contains("NOT within"));
}

#[test]
fn score_counts_the_pairs_that_are_ranked_rightly() {
    use super::fresh::{Case, Compared, cases, score};
    let none: [Compared; 0] = [];
    assert!(score(&none, 2).is_none());
    // The more letters, the faster; the simulator says so too, but of one.
    let rate = |case: &Case| case.fresh.implementation.len() as f64;
    let compared = |case: Case| {
        let mistaken = case.fresh.implementation == "long-sharded";
        let simulated = if mistaken { 1.0 } else { rate(&case) };
        let measured = rate(&case);
        // Names that are a letter apart are a tie.
        Compared { case, simulated, measured, range: [measured - 0.5, measured + 0.5] }
    };
    let all: Vec<_> = cases(2).map(compared).collect();
    let [one, two] = [1, 2].map(|threads| score(&all, threads).expect("there are pairs"));
    assert_eq!((one.pairs, two.pairs), (61, 75));
    assert_eq!(two.pairs - two.right, two.wrong.len());
    // Pairs of the same length are not faster either way, which both say.
    assert_eq!(two.wrong.len(), 2);
    assert!(two.wrong.iter().all(|pair| pair.names[1] == "long-sharded" && !pair.is_tie));
    assert_eq!(two.pairs - two.ties - two.right_apart, 2);
    assert!((1..two.pairs).contains(&two.ties), "{} ties", two.ties);
    assert!((two.factor - 1.0).abs() < 1e-9);
}

#[test]
fn sections_of_figures_that_were_not_run_stay() {
    let setting = page::Setting {
        here: "machine: any".to_owned(),
        claim: "A model.".to_owned(),
        missing: Vec::new(),
        quick: false,
        without: None,
    };
    let shown = |id: &str| {
        let figure = all().find(|figure| figure.id == id).unwrap();
        let (simulated, measured) = (figure.series(&[]), figure.series(&[]));
        page::Shown { figure, simulated, measured, notes: Vec::new() }
    };
    let first = [shown("k42-4"), shown("oplog-2"), shown("parsec-4")];
    let first = page::markdown(&setting, &first, "2026-01-01", "");
    let both = page::markdown(&setting, &[shown("oplog-2"), shown("k42-1")], "2026-02-02", &first);
    let lines = |text: &str, begin: &str| {
        let of = |line: &str| line.split_once(begin).map(|(_, rest)| rest[..10].to_owned());
        text.lines().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(lines(&first, "it was run on "), ["2026-01-01"]);
    assert!(lines(&first, "Run otherwise: on ").is_empty());
    // Two of four were run on either day.
    assert_eq!(lines(&both, "it was run on "), ["2026-01-01"]);
    assert_eq!(lines(&both, "Run otherwise: on "), ["2026-02-02"; 2]);
    assert!(both.contains("[k42-4](#k42-4)") && both.contains("[k42-1](#k42-1)"));
    assert_eq!(both.matches("<a id=").count(), 4);
    assert_eq!(page::markdown(&setting, &[], "2026-03-03", &both), both);
}

#[test]
fn the_page_in_docs_is_as_it_would_be_written_now() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers.md");
    let page = std::fs::read_to_string(path).expect("docs/papers.md");
    let is_claim = |text: &&str| text.starts_with("This is a stated cost model");
    let claim = page.split("\n\n").find(is_claim).expect("what a simulation is worth");
    let setting = page::Setting {
        here: String::new(),
        claim: claim.to_owned(),
        missing: Vec::new(),
        quick: false,
        without: None,
    };
    let again = page::markdown(&setting, &[], "", &page);
    let differs = page.lines().zip(again.lines()).find(|(one, other)| one != other);
    assert!(page == again, "written again, the page differs: {differs:?}");
}
