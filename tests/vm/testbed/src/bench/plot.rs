//! The distribution of round-trip times, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::stats::percentile;

use super::plan::LOAD;
use super::record::{Measure, Record, distinct};

/// A candidate's round trips of all restarts together.
struct Curve<'a> {
    candidate: &'a str,
    /// Every 0.5 % of them, sorted.
    quantiles: Vec<f64>,
}

/// A curve for each candidate with load: the share of the probes (vertical, percent) that
/// were answered within a time (horizontal, ms, logarithmic).
pub fn plot(records: &[Record]) -> Result<String> {
    let curves = curves(records);
    let all = || curves.iter().flat_map(|curve| &curve.quantiles).copied();
    // Without a curve there is no least value, and the axis would have no end.
    let least = all().fold(f64::INFINITY, f64::min).clamp(1e-3, 1.0);
    let most = all().fold(least * 10.0, f64::max);
    let mut svg = String::new();
    draw(&curves, least, most, &mut svg).map_err(|e| anyhow!("cannot plot: {e}"))?;
    Ok(svg)
}

fn curves(records: &[Record]) -> Vec<Curve<'_>> {
    let is = |record: &&Record| record.key.measure == Measure::Rtt && record.key.setting == LOAD;
    let of = |candidate| {
        let own = records.iter().filter(is).filter(|record| record.key.candidate == candidate);
        let mut sorted: Vec<f64> =
            own.flat_map(|record| &record.parts).flat_map(|part| &part.samples).copied().collect();
        sorted.sort_by(f64::total_cmp);
        let quantiles = (0..=200).filter_map(|step| percentile(&sorted, 5 * step)).collect();
        Curve { candidate, quantiles }
    };
    let candidates = distinct(records.iter().filter(is).map(|r| r.key.candidate.as_str()));
    candidates.into_iter().map(of).filter(|curve| !curve.quantiles.is_empty()).collect()
}

fn draw(
    curves: &[Curve],
    least: f64,
    most: f64,
    svg: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (960, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .caption(format!("Probes answered within a time, {LOAD} load"), ("sans-serif", 20))
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((least..most).log_scale(), 0.0..100.0)?;
    chart.configure_mesh().x_desc("ms").y_desc("%").draw()?;
    for (at, curve) in curves.iter().enumerate() {
        let color = Palette99::pick(at).to_rgba();
        let color = if curve.candidate.starts_with("gthctl") {
            color.stroke_width(3)
        } else {
            color.stroke_width(1)
        };
        let steps = (curve.quantiles.len() - 1).max(1) as f64;
        let points =
            curve.quantiles.iter().enumerate().map(|(i, &ms)| (ms, i as f64 * 100.0 / steps));
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(curve.candidate)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
