package telemetry

import (
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// model is a linear regression by least squares.
type model struct {
	beta      []float64
	unit      []float64 // standard errors of beta, for observations of variance 1
	errors    []float64 // the same for the variance that they turn out to have
	residuals []float64
	leverage  []float64 // the diagonal of the hat matrix
	rss       float64
	free      int // degrees of freedom
}

// regress fits y to the columns. It returns false if they don't determine it.
func regress(y []float64, columns [][]float64) (model, bool) {
	n, k := len(y), len(columns)
	m := model{free: n - k}
	if m.free < 1 {
		return m, false
	}
	x := mat.NewDense(n, k, nil)
	for j, c := range columns {
		x.SetCol(j, c)
	}
	var square mat.SymDense
	square.SymOuterK(1, x.T())
	var factors mat.Cholesky
	if !factors.Factorize(&square) || factors.Cond() > 1e10 {
		return m, false
	}
	var inverse mat.SymDense
	if factors.InverseTo(&inverse) != nil {
		return m, false
	}
	var moment, beta mat.VecDense
	moment.MulVec(x.T(), mat.NewVecDense(n, y))
	beta.MulVec(&inverse, &moment)
	var fitted mat.VecDense
	fitted.MulVec(x, &beta)
	m.beta = beta.RawVector().Data
	for i := range n {
		r := y[i] - fitted.AtVec(i)
		m.residuals = append(m.residuals, r)
		m.rss += r * r
		row := x.RowView(i)
		m.leverage = append(m.leverage, mat.Inner(row, &inverse, row))
	}
	variance := m.rss / float64(m.free)
	for j := range k {
		m.unit = append(m.unit, math.Sqrt(inverse.At(j, j)))
		m.errors = append(m.errors, math.Sqrt(variance)*m.unit[j])
	}
	return m, true
}

// outlier is the observation with the largest deleted residual, and how likely
// chance makes one of all as large (Bonferroni), if the standard deviation is
// known to be that many at least. Where nothing deviates it is -1.
func (m *model) outlier(least float64) (index int, p float64) {
	if m.free < 2 {
		return -1, 1
	}
	index, most := -1, 0.0
	for i, r := range m.residuals {
		spare := 1 - m.leverage[i]
		left := m.rss - r*r/spare
		deviation := max(math.Sqrt(max(left, 0)/float64(m.free-1)), least)
		if spare < 1e-9 || deviation == 0 {
			continue
		}
		if deleted := math.Abs(r) / math.Sqrt(spare) / deviation; deleted > most {
			index, most = i, deleted
		}
	}
	return index, min(1, 2*survival(most, m.free-1)*float64(len(m.residuals)))
}

// quantile is Student's t.
func quantile(p float64, free int) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(free)}.Quantile(p)
}

// survival is how often Student's t is above a value.
func survival(t float64, free int) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(free)}.Survival(t)
}
