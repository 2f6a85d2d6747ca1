//! `manycore-bench plot`: draws a picture of a file of `bench --format csv`, for the documents.

use manycore_cli::{failure::Failure, save, text};
use manycore_page::{Curve, Plot};

use super::args::PlotArgs;
use crate::compare::by_threads;

/// Writes the picture.
pub fn run(args: &PlotArgs) -> Result<(), Failure> {
    let csv = text::read(&args.file, text::TABLE).map_err(|error| {
        Failure::run(format_args!("cannot read {}: {error}", args.file.display()))
    })?;
    let curve = |(colour, word): (usize, &String)| {
        let (implementation, name) = word.split_once('=').unwrap_or((word, word));
        let mut points = by_threads(&csv, &args.metric, implementation);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.is_empty() {
            return Err(Failure::run(format_args!(
                "{} has no '{}' of {implementation}",
                args.file.display(),
                args.metric
            )));
        }
        let name = name.to_owned();
        Ok(Curve { name, points, colour, ..Curve::default() })
    };
    let plot = Plot {
        heading: args.heading.clone(),
        x: args.x.clone(),
        y: args.y.clone(),
        curves: args.curves.iter().enumerate().map(curve).collect::<Result<_, _>>()?,
    };
    save::check(&args.out)?;
    save::whole(&args.out, plot.file().as_bytes())
}
