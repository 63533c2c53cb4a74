package telemetry

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"
)

//go:embed report.html
var page string

var report = template.Must(template.New("report").Parse(page))

// WriteHTML writes the report as one page that needs nothing else.
func (r *Report) WriteHTML(w io.Writer, title string) error {
	type figure struct {
		Title   string
		Drawing template.HTML
	}
	sentences := r.Explain()
	data := struct {
		Title, Headline string
		Sentences       []string
		Figures         []figure
		Days            []row
	}{Title: title, Headline: sentences[0], Sentences: sentences[1:], Days: r.rows()}
	for _, c := range Charts {
		var b bytes.Buffer
		if err := r.Draw(&b, c); err != nil {
			return err
		}
		// Only numbers and dates of our own are in the drawing.
		data.Figures = append(data.Figures, figure{c.Title(), template.HTML(b.String())})
	}
	return report.Execute(w, data)
}

// row is a day in the report's table.
type row struct {
	Day      string   `json:"day"`
	Weekday  string   `json:"-"`
	Items    int64    `json:"items"`
	Raw      float64  `json:"raw"`
	Rate     float64  `json:"sampling_rate"`
	Weighted float64  `json:"weighted"`
	Low      float64  `json:"weighted_low"`
	High     float64  `json:"weighted_high"`
	SDKs     []string `json:"sdks,omitempty"`
	LeftOut  string   `json:"left_out,omitempty"`
}

func (r *Report) rows() []row {
	why := map[time.Time]string{}
	for _, l := range r.LeftOut {
		why[l.Day] = l.Why
	}
	var list []row
	for _, d := range r.Days {
		x := row{
			Day: d.Start.Format(time.DateOnly), Weekday: d.Start.Format("Mon"), Items: d.Items,
			Raw: d.Raw, Rate: d.Rate(), Weighted: d.Weighted, Low: d.Low, High: d.High, LeftOut: why[d.Start],
		}
		for name := range d.SDKs {
			x.SDKs = append(x.SDKs, name)
		}
		slices.Sort(x.SDKs)
		list = append(list, x)
	}
	return list
}

// WriteJSON writes what the report says for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	type step struct {
		Day    string  `json:"day,omitempty"`
		Change float64 `json:"change"`
		Low    float64 `json:"low"`
		High   float64 `json:"high"`
		// Without the rounding of itemCount.
		NoiseLow  float64 `json:"noise_low"`
		NoiseHigh float64 `json:"noise_high"`
	}
	type change struct {
		Day     string   `json:"day"`
		OldRate float64  `json:"before"`
		NewRate float64  `json:"after"`
		Came    []string `json:"sdk_came,omitempty"`
		Went    []string `json:"sdk_went,omitempty"`
	}
	type short struct {
		Day    string  `json:"day"`
		Change float64 `json:"change"`
	}
	data := struct {
		Verdict      Verdict  `json:"verdict"`
		Changes      []change `json:"rate_changes"`
		Step         *step    `json:"step,omitempty"`
		Short        []short  `json:"days_short_of_the_reference,omitempty"`
		TrailingDays int      `json:"reference_days_after_the_last_item,omitempty"`
		Unseen       float64  `json:"largest_loss_not_excluded"`
		Spread       float64  `json:"spread"`
		Suspect      int64    `json:"items_whose_item_count_contradicts_their_rate"`
		Explain      []string `json:"explanation"`
		Days         []row    `json:"days"`
	}{
		Verdict: r.Verdict, Changes: []change{}, TrailingDays: r.TrailingDays, Unseen: max(r.Unseen, 0), Spread: r.Spread,
		Suspect: r.Suspect, Explain: r.Explain(), Days: r.rows(),
	}
	for _, c := range r.Changes {
		data.Changes = append(data.Changes, change{c.Day.Format(time.DateOnly), c.OldRate, c.NewRate, c.Came, c.Went})
	}
	if s := r.Step; s != nil {
		data.Step = &step{Change: s.Change, Low: s.Low, High: s.High, NoiseLow: s.NoiseLow, NoiseHigh: s.NoiseHigh}
		if !s.Day.IsZero() {
			data.Step.Day = s.Day.Format(time.DateOnly)
		}
	}
	for _, s := range r.Short {
		data.Short = append(data.Short, short{s.Day.Format(time.DateOnly), s.Change})
	}
	if r.Drift {
		data.Unseen = 1
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	if err := out.Encode(data); err != nil {
		return fmt.Errorf("report as JSON: %w", err)
	}
	return nil
}
