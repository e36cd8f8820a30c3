//! Charts: one value for each label and series.

use serde::Serialize;

/// How values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Points joined by lines.
    Lines,
    /// Bars side by side.
    Bars,
}

/// One chart; labels stand at equal distances from left to right.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chart {
    pub(super) title: String,
    /// Of the values.
    pub(super) unit: String,
    pub(super) shape: Shape,
    /// Whether each line of the grid is ten times the one below it.
    pub(super) is_logarithmic: bool,
    pub(super) labels: Vec<String>,
    pub(super) series: Vec<Series>,
}

/// Values that belong together, one for each label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    pub(super) name: String,
    pub(super) values: Vec<Option<f64>>,
    /// Drawn with dashes: somebody else's figures.
    pub(super) is_published: bool,
}

impl Series {
    /// Values measured here.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Series {
        Series { name: name.into(), values: values.into_iter().collect(), is_published: false }
    }

    /// Values from a publication.
    pub fn published(name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Series {
        Series { is_published: true, ..Series::new(name, values) }
    }

    fn has_values(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }
}

impl Chart {
    /// A chart without series.
    pub fn new<L: Into<String>>(
        title: impl Into<String>,
        unit: impl Into<String>,
        shape: Shape,
        labels: impl IntoIterator<Item = L>,
    ) -> Chart {
        let labels = labels.into_iter().map(Into::into).collect();
        let (title, unit) = (title.into(), unit.into());
        Chart { title, unit, shape, is_logarithmic: false, labels, series: Vec::new() }
    }

    /// With a logarithmic scale; values that are not above zero are not drawn.
    #[must_use]
    pub fn logarithmic(mut self) -> Chart {
        self.is_logarithmic = true;
        self
    }

    /// With one series more, unless it has no value at all.
    #[must_use]
    pub fn with(mut self, series: Series) -> Chart {
        if series.has_values() {
            self.series.push(series);
        }
        self
    }

    pub(super) fn has_values(&self) -> bool {
        self.drawn().next().is_some()
    }

    /// The values that are drawn.
    pub(super) fn drawn(&self) -> impl Iterator<Item = f64> + '_ {
        let all = self.series.iter().flat_map(|series| series.values.iter().copied().flatten());
        all.filter(|value| self.can_draw(*value))
    }

    pub(super) fn can_draw(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_logarithmic || value > 0.0)
    }
}
