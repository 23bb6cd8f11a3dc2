//! Packets between pods of two nodes: over a path that the agents have made, over one made by hand with `ip` and `bridge`, and over flannel's.
//!
//! ```text
//!   pod -- bridge -- node: eth0 ====== eth0 :node -- bridge -- pod         a Pair; each of these is one, for direct and for vxlan
//!     by hand | by hand once more | netloom | netloom without strict sources | flannel
//!   a round: each pair in turn, another one first each time --> UDP round trip, a TCP stream's throughput and processor time
//!   by hand once more / by hand: what the machine makes of nothing. Above 1.5 % nothing is judged.
//! ```

mod flow;
mod pair;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::goals::Goal;
use crate::machine::Machine;
use crate::namespace;
use crate::options::{Options, Scratch};
use crate::{progress, write};
use flow::Flow;
use pair::{Maker, Mode, Pair};

/// What two paths that are the same may differ by, at most, for anything to be said of others.
const NULL: f64 = 0.015;
/// How far behind the others Netloom may be, in percent.
const BEHIND: f64 = 3.0;

/// What is compared of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    RoundTrip,
    Throughput,
    Processor,
}

/// All rounds of one mode: a row of flows for each maker, in their order.
struct Rounds {
    mode: Mode,
    makers: Vec<Maker>,
    flows: Vec<Vec<Flow>>,
}

/// `netloom-benches paths`
pub(crate) fn run(options: &Options) -> Result<()> {
    namespace::sweep()?;
    println!("{}", Machine::look(&options.data_dir)?);
    let scratch = Scratch::make(&options.data_dir, "paths")?;
    let (mut goals, mut report) = (Vec::new(), Map::new());
    for mode in [Mode::Direct, Mode::Vxlan] {
        let makers = Maker::all(options);
        let pairs = makers.iter().map(|maker| Pair::make(options, scratch.path(), mode, *maker)).collect::<Result<Vec<_>>>()?;
        let rounds = Rounds::of(mode, &makers, &pairs, options.rounds).with_context(|| format!("measure {}", mode.name()))?;
        print!("\n{}", rounds.table());
        goals.extend(rounds.goals());
        report.insert(mode.name().to_owned(), rounds.json());
    }
    println!("\ngoals, by the medians of this run");
    goals.iter().for_each(|goal| print!("{goal}"));
    if let Some(file) = &options.json {
        write(file, &Value::Object(report))?;
    }
    Ok(())
}

// === impl Figure ===

impl Figure {
    const ALL: [Figure; 3] = [Figure::RoundTrip, Figure::Throughput, Figure::Processor];

    fn name(self) -> &'static str {
        match self {
            Figure::RoundTrip => "UDP round trip, us",
            Figure::Throughput => "TCP, Gbit/s",
            Figure::Processor => "CPU s/GB",
        }
    }

    fn of(self, flow: &Flow) -> f64 {
        match self {
            Figure::RoundTrip => flow.round_trip.as_secs_f64() * 1e6,
            Figure::Throughput => flow.bytes as f64 * 8.0 / 1e9 / flow.took.as_secs_f64(),
            Figure::Processor => flow.computed.as_secs_f64() / (flow.bytes as f64 / 1e9),
        }
    }

    /// How many times the other's cost ours is: above 1 we are behind.
    fn cost(self, ours: f64, other: f64) -> f64 {
        if self == Figure::Throughput { other / ours } else { ours / other }
    }
}

// === impl Rounds ===

impl Rounds {
    fn of(mode: Mode, makers: &[Maker], pairs: &[Pair], rounds: usize) -> Result<Self> {
        let mut flows = vec![Vec::with_capacity(rounds); pairs.len()];
        // The first round finds neighbours and opens windows.
        for round in 0..=rounds {
            progress(mode.name(), round, rounds);
            let mut order: Vec<_> = pairs.iter().zip(&mut flows).collect();
            let first = round % order.len();
            order.rotate_left(first);
            for (pair, flows) in order {
                let flow = pair.flow()?;
                if round > 0 {
                    flows.push(flow);
                }
            }
        }
        Ok(Rounds { mode, makers: makers.to_vec(), flows })
    }

    /// The median of a maker's figure.
    fn median(&self, figure: Figure, maker: Maker) -> Option<f64> {
        let at = self.makers.iter().position(|known| *known == maker)?;
        let mut values: Vec<f64> = self.flows.get(at)?.iter().map(|flow| figure.of(flow)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// How many times the cost of a path by hand another one has.
    fn cost(&self, figure: Figure, ours: Maker, other: Maker) -> Option<f64> {
        Some(figure.cost(self.median(figure, ours)?, self.median(figure, other)?))
    }

    fn null(&self, figure: Figure) -> f64 {
        self.cost(figure, Maker::HandAgain, Maker::Hand).unwrap_or(f64::NAN)
    }

    fn table(&self) -> String {
        let rounds = self.flows.first().map_or(0, Vec::len);
        let mut text = format!("{}: {rounds} rounds, turn by turn, medians\n{:20}", self.mode.name(), "");
        text += &self.makers.iter().map(|maker| format!(" {:>13}", maker.name())).collect::<String>();
        text += &format!(" {:>9} {:>9} {:>9}\n", "null", "/by hand", "/flannel");
        for figure in Figure::ALL {
            let medians = self.makers.iter().map(|maker| format!(" {:>13.2}", self.median(figure, *maker).unwrap_or(f64::NAN)));
            let costs = [(Maker::HandAgain, Maker::Hand), (Maker::Netloom, Maker::Hand), (Maker::Netloom, Maker::Flannel)];
            let costs = costs.map(|(ours, other)| self.cost(figure, ours, other).map_or("-".to_owned(), |cost| format!("{cost:.3}x")));
            let costs: String = costs.iter().map(|cost| format!(" {cost:>9}")).collect();
            text += &format!("{:20}{}{costs}\n", figure.name(), medians.collect::<String>());
        }
        text
    }

    /// The lines of the goals; of what cannot be judged, why.
    fn goals(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for figure in Figure::ALL {
            for other in [Maker::Hand, Maker::Flannel] {
                let Some(cost) = self.cost(figure, Maker::Netloom, other) else { continue };
                let what = format!("{}: {}, % behind {}", self.mode.name(), figure.name(), other.name());
                let null = self.null(figure);
                lines.push(if is_quiet(null) {
                    Goal::at_most(&what, BEHIND, (cost - 1.0) * 100.0).line()
                } else {
                    format!("{what:52} not judged: two equal paths differ by {:.1} %\n", (null - 1.0).abs() * 100.0)
                });
            }
        }
        lines
    }

    fn json(&self) -> Value {
        let of = |figure: Figure| -> Map<String, Value> {
            self.makers.iter().map(|maker| (maker.name().to_owned(), json!(self.median(figure, *maker)))).collect()
        };
        Figure::ALL.into_iter().map(|figure| (figure.name().to_owned(), Value::Object(of(figure)))).collect()
    }
}

/// Whether a comparison of nothing with nothing says that the machine is quiet enough.
fn is_quiet(null: f64) -> bool {
    (null - 1.0).abs() <= NULL
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn flow(micros: u64, bytes: u64) -> Flow {
        Flow { round_trip: Duration::from_micros(micros), bytes, took: Duration::from_secs(1), computed: Duration::from_secs(1) }
    }

    fn rounds(again: u64, ours: u64) -> Rounds {
        let makers = vec![Maker::Hand, Maker::HandAgain, Maker::Netloom];
        let flows = [100, again, ours].map(|micros| vec![flow(micros, 1_000_000_000 / micros); 3]).to_vec();
        Rounds { mode: Mode::Direct, makers, flows }
    }

    #[test]
    fn more_time_less_throughput_and_more_processor_time_are_behind() {
        let rounds = rounds(100, 110);
        for figure in Figure::ALL {
            let cost = rounds.cost(figure, Maker::Netloom, Maker::Hand).unwrap();
            assert!((cost - 1.1).abs() < 1e-6, "{figure:?}: {cost}");
        }
        assert!(rounds.goals().iter().all(|line| line.ends_with("MISSED\n")), "{:?}", rounds.goals());
        assert_eq!(rounds.cost(Figure::Throughput, Maker::Netloom, Maker::Flannel), None);
    }

    #[test]
    fn nothing_is_judged_on_a_machine_that_is_not_quiet() {
        let (quiet, busy) = (rounds(101, 102).goals(), rounds(102, 102).goals());
        assert!(quiet.len() == 3 && quiet.iter().all(|line| line.ends_with("met\n")), "{quiet:?}");
        assert!(busy.len() == 3 && busy.iter().all(|line| line.contains("not judged: two equal paths differ by 2.0 %")), "{busy:?}");
    }
}
