use super::{Blind, CLAIM, Curve, HotLine, Point, Report, Variation, variations};
use crate::{Access, Engine, Machine, drive};

/// A counter to which all cores add.
fn counted(machine: &Machine, cores: u32) -> (Point, Vec<HotLine>) {
    let mut engine = Engine::new(machine.clone(), cores, 1).unwrap();
    let actor = || -> drive::Actor<'static> {
        let mut calls = 0;
        Box::new(move |engine| {
            calls += 1;
            match calls {
                201 => engine.exit(),
                call if call % 2 == 1 => engine.work(300),
                _ => engine.access(64, 8, Access::Rmw, 119),
            }
        })
    };
    drive::run(&mut engine, (0..cores).map(|_| actor()).collect(), 0).unwrap();
    let totals = engine.totals();
    let mut place = |pc| format!("src/<counter>.rs:{pc}");
    let lines = engine.dearest_lines(5);
    let lines = lines.iter().map(|line| HotLine::new(line, totals.waited, &mut place)).collect();
    (Point::new(cores, 100 * u64::from(cores), engine.now(), &totals), lines)
}

fn report() -> Report {
    let machine = Machine::named("opteron-8x6").unwrap();
    let counts = [1, 2, 12];
    let varied = variations(&machine).into_iter().map(|(change, machine)| Variation {
        change,
        points: counts.map(|cores| counted(&machine, cores).0).to_vec(),
    });
    let curve = Curve {
        name: "counter".to_string(),
        points: counts.map(|cores| counted(&machine, cores).0).to_vec(),
        variations: varied.collect(),
        repeats: Vec::new(),
        lines: counted(&machine, 12).1,
    };
    let mut report = Report::new("A counter & more", &machine);
    report.curves.push(curve);
    report
}

#[test]
fn text_says_the_claim_the_lines_and_what_is_missing() {
    let text = report().to_string();
    for part in
        [CLAIM, "src/<counter>.rs:119", "The model leaves out", "100.0 % of waiting", "linger=0"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn html_says_the_claim_and_loads_nothing() {
    let page = report().html();
    for part in [CLAIM, "What the model leaves out", "src/&lt;counter&gt;.rs:119", "guess", "<svg"]
    {
        assert!(page.contains(part), "{part} is missing");
    }
    for word in ["http:", "https:", "src=", "<script", "<link", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    for tag in ["main", "h2", "ul", "li", "div", "figure", "svg", "table", "tr", "td", "g"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn result_that_rests_on_uninstrumented_code_says_so_first() {
    let mut report = report();
    let blind = |object: &str, share| Blind {
        object: object.to_string(),
        functions: vec!["mi_malloc".to_string()],
        share,
    };
    report.blind = Some(vec![blind("prog", 0.05), blind("libz.so", 0.04)]);
    assert!(report.to_string().starts_with("A counter"), "too little to warn");
    assert!(report.to_string().contains("\n- 5.0 % prog (mi_malloc)\n"));
    report.blind = Some(vec![blind("prog", 0.62)]);
    let line = "62 % of the instructions are of uninstrumented code";
    assert!(report.to_string().starts_with(&format!("Warning: {line}")));
    let page = report.html();
    let [first, claim] = [line, CLAIM].map(|text| page.find(text).expect("it is there"));
    assert!(first < claim);
}

#[test]
fn json_comes_back_as_it_was() {
    let report = report();
    assert_eq!(serde_json::from_str::<Report>(&report.json()).unwrap(), report);
}

#[test]
fn the_band_holds_the_curve_and_all_variations() {
    let report = report();
    let curve = &report.curves[0];
    let (low, high) = curve.band(2, report.machine.mhz);
    let own = curve.points[2].rate(report.machine.mhz);
    assert!(low <= own && own <= high && low < high, "{low} {own} {high}");
}

#[test]
fn one_counter_costs_a_shared_write_for_each_operation() {
    let point = report().curves[0].points[2];
    assert!((0.9..=1.0).contains(&point.each(point.shared_writes)));
    assert!((point.each(point.rmws) - 1.0).abs() < 1e-9);
}
