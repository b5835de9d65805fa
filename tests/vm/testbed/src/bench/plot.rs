//! The distribution of round-trip times, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::plan::LOAD;
use super::record::Measure;
use super::summary::Cell;

/// A curve for each candidate with load: the share of the probes (vertical, percent) that
/// were answered within a time (horizontal, ms, logarithmic).
pub fn plot(cells: &[Cell]) -> Result<String> {
    let curves: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.measure == Measure::Rtt && cell.setting == LOAD)
        .filter(|cell| cell.error.is_none() && !cell.quantiles.is_empty())
        .collect();
    let all = || curves.iter().flat_map(|cell| &cell.quantiles).copied();
    // Without a curve there is no least, and the axis would have no end.
    let least = all().fold(f64::INFINITY, f64::min).clamp(1e-3, 1.0);
    let most = all().fold(least * 10.0, f64::max);
    let mut svg = String::new();
    draw(&curves, least, most, &mut svg).map_err(|e| anyhow!("cannot plot: {e}"))?;
    Ok(svg)
}

fn draw(
    curves: &[&Cell],
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
    for (at, cell) in curves.iter().enumerate() {
        let color = Palette99::pick(at).to_rgba();
        let color = if cell.candidate.starts_with("gthctl") {
            color.stroke_width(3)
        } else {
            color.stroke_width(1)
        };
        let steps = (cell.quantiles.len() - 1).max(1) as f64;
        let points =
            cell.quantiles.iter().enumerate().map(|(i, &ms)| (ms, i as f64 * 100.0 / steps));
        chart
            .draw_series(LineSeries::new(points, color))?
            .label(&cell.candidate)
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
