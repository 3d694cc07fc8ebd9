package picture

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-analyze/charts"

	"toolledger/internal/ops"
)

// ErrNothing says that there is nothing to draw.
var ErrNothing = errors.New("picture: no data")

// Sizes in pixels. A unit of the dashboard's grid is unitX by unitY.
const (
	unitX, unitY = 76, 50
	gap          = 5 // around each widget
	inset        = 12
	lineHeight   = 20
	pointWidth   = 2.0
	dot          = 10
)

// Colors of CloudWatch's console, about.
var (
	page    = charts.ColorFromHex("#f2f3f3")
	card    = charts.ColorFromHex("#ffffff")
	border  = charts.ColorFromHex("#d5dbdb")
	ink     = charts.ColorFromHex("#16191f")
	faint   = charts.ColorFromHex("#687078")
	linked  = charts.ColorFromHex("#0073bb")
	grid    = charts.ColorFromHex("#eaeded")
	healthy = charts.ColorFromHex("#1d8102")
	red     = charts.ColorFromHex("#d13212")
)

// painter draws one dashboard.
type painter struct {
	*charts.Painter
	data *Data
}

// Draw draws the body, whose references must have been expanded, as a PNG. Errors: ErrNothing without any data, or what the
// drawing failed with.
func Draw(body ops.Body, data *Data) ([]byte, error) {
	if len(data.points) == 0 {
		return nil, ErrNothing
	}
	height := 0
	for _, w := range body.Widgets {
		height = max(height, w.Y+w.Height)
	}
	p := &painter{data: data, Painter: charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputPNG, Width: ops.Columns*unitX + 2*gap, Height: height*unitY + 2*gap,
		Font: charts.GetFont(charts.FontFamilyNotoSans),
	})}
	p.FilledRect(0, 0, p.Width(), p.Height(), page, page, 0)
	for _, w := range body.Widgets {
		if err := p.widget(w); err != nil {
			return nil, fmt.Errorf("widget %q: %w", w.Properties.Title, err)
		}
	}
	return p.Bytes()
}

// box is a rectangle of the picture.
type box struct{ x, y, width, height int }

func (p *painter) widget(w ops.Widget) error {
	b := box{gap + w.X*unitX + gap, gap + w.Y*unitY + gap, w.Width*unitX - 2*gap, w.Height*unitY - 2*gap}
	if w.Type == ops.TypeText {
		p.markdown(b, w.Properties.Markdown)
		return nil
	}
	p.FilledRect(b.x, b.y, b.x+b.width, b.y+b.height, card, border, 1)
	p.write(w.Properties.Title, b.x+inset, b.y+inset+12, 12, ink)
	inner := box{b.x + inset, b.y + inset + lineHeight, b.width - 2*inset, b.height - 2*inset - lineHeight}
	switch {
	case w.Type == ops.TypeAlarm:
		p.alarms(inner, w.Properties.Alarms)
		return nil
	case w.Properties.View == ops.ViewSingleValue:
		return p.values(inner, w.Properties)
	default:
		return p.graph(inner, w.Properties)
	}
}

func (p *painter) write(text string, x, y int, size float64, color charts.Color) (end int) {
	p.Text(text, x, y, 0, charts.FontStyle{FontSize: size, FontColor: color, Font: charts.GetFont(charts.FontFamilyNotoSans)})
	return x + p.width(text, size)
}

func (p *painter) width(text string, size float64) int {
	return p.MeasureText(text, 0, charts.FontStyle{FontSize: size, FontColor: ink, Font: charts.GetFont(charts.FontFamilyNotoSans)}).Width()
}

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// markdown writes lines of text: a heading where a line begins with #, links by their text.
func (p *painter) markdown(b box, text string) {
	lines := strings.Split(text, "\n")
	y := b.y + (b.height-len(lines)*lineHeight)/2 + lineHeight - 3
	if len(lines) == 1 { // a caption belongs to the widget below it
		y = b.y + b.height - 4
	}
	for _, l := range lines {
		size, x := 11.0, b.x+2
		if heading, ok := strings.CutPrefix(l, "# "); ok {
			size, l = 20, heading
			y += 4
		}
		for l != "" {
			at := markdownLink.FindStringSubmatchIndex(l)
			if at == nil {
				p.write(l, x, y, size, faint)
				break
			}
			x = p.write(l[:at[0]], x, y, size, faint)
			x = p.write(l[at[2]:at[3]], x+4, y, size, linked)
			l = l[at[1]:]
		}
		y += lineHeight + 6
	}
}

// alarms shows each alarm by a dot in its state's color, in columns.
func (p *painter) alarms(b box, arns []string) {
	rows := max(1, b.height/(lineHeight+2))
	columns := (len(arns) + rows - 1) / rows
	for i, arn := range arns {
		x, y := b.x+i/rows*(b.width/columns), b.y+i%rows*(lineHeight+2)+lineHeight/2
		color, name := faint, arn[strings.LastIndexByte(arn, ':')+1:]
		for _, a := range ops.Alarms() {
			if !strings.HasSuffix(name, "-"+a.Name) {
				continue
			}
			name = a.Name
			switch p.data.state(a) {
			case StateOK:
				color = healthy
			case StateAlarm:
				color = red
			case StateUnknown:
				name += " (on AWS)"
			}
			break
		}
		p.FilledRect(x, y, x+dot, y+dot, color, color, 0)
		p.write(name, x+dot+6, y+dot, 11, ink)
	}
}

// values shows each metric as one number of the whole time, with its course below it.
func (p *painter) values(b box, props ops.Properties) error {
	width := b.width / len(props.Metrics)
	for i, e := range props.Metrics {
		l := p.data.lines(e, props.Stat)[0]
		x := b.x + i*width
		color := red
		if l.total(cmp.Or(e.Stat, props.Stat)) == 0 {
			color, l.color = healthy, "#1d8102"
		}
		p.write(number(l.total(cmp.Or(e.Stat, props.Stat))), x, b.y+40, 30, color)
		p.write(l.label, x, b.y+62, 11, faint)
		below := box{x, b.y + 70, width - 2*inset, b.height - 70}
		if err := p.plot(below, []line{l}, props, true); err != nil {
			return err
		}
	}
	return nil
}

// graph shows lines over time with a legend below them.
func (p *painter) graph(b box, props ops.Properties) error {
	var lines []line
	for _, e := range props.Metrics {
		lines = append(lines, p.data.lines(e, props.Stat)...)
	}
	named := slices.Clone(lines)
	if props.Annotations != nil {
		for _, h := range props.Annotations.Horizontal {
			named = append(named, line{label: h.Label + " at " + number(h.Value), color: h.Color, here: true})
		}
	}
	rows := p.legend(b, named)
	b.height -= rows * lineHeight
	if !slices.ContainsFunc(lines, func(l line) bool { return !l.empty() }) {
		says := "no data in this time"
		if !lines[0].here {
			says = "measured by AWS: no data on a local stack"
		}
		p.write(says, b.x+(b.width-p.width(says, 12))/2, b.y+b.height/2, 12, faint)
		return nil
	}
	return p.plot(b, lines, props, false)
}

// legend names the series at the bottom of b, and returns how many rows it took.
func (p *painter) legend(b box, lines []line) int {
	type place struct{ x, row int }
	places := make([]place, len(lines))
	x, row := 0, 0
	for i, l := range lines {
		width := dot + 8 + p.width(l.name(), 10) + 14
		if x > 0 && x+width > b.width {
			x, row = 0, row+1
		}
		places[i] = place{x, row}
		x += width
	}
	for i, l := range lines {
		at, y := b.x+places[i].x, b.y+b.height-(row-places[i].row)*lineHeight
		color := charts.ColorFromHex(cmp.Or(l.color, "#7f7f7f"))
		p.FilledRect(at, y-dot+1, at+dot, y+1, color, color, 0)
		p.write(l.name(), at+dot+5, y, 10, ink)
	}
	return row + 1
}

func (l *line) name() string {
	if !l.here {
		return l.label + " (on AWS)"
	}
	return l.label
}

// plot draws lines; bare leaves out the axes.
func (p *painter) plot(b box, lines []line, props ops.Properties, bare bool) error {
	opt, right := p.lineOptions(lines, props)
	opt.XAxis.Labels, opt.XAxis.LabelCount = p.data.labels(), 6
	opt.XAxis.LabelFontStyle.FontSize = 9
	opt.XAxis.BoundaryGap = new(false)
	opt.YAxis = make([]charts.YAxisOption, 1, 2)
	if right {
		opt.YAxis = opt.YAxis[:2]
	}
	for i := range opt.YAxis {
		opt.YAxis[i].Min, opt.YAxis[i].LabelFontStyle.FontSize = new(0.0), 9
		opt.YAxis[i].SplitLineShow = new(i == 0)
		if bare {
			opt.YAxis[i].Show, opt.YAxis[i].SplitLineShow = new(false), new(false)
		}
	}
	if bare {
		opt.XAxis.Show = new(false)
	}
	child := p.Child(charts.PainterBoxOption(charts.NewBox(b.x, b.y, b.x+b.width, b.y+b.height)))
	return child.LineChart(opt)
}

// lineOptions are the series with their colors, and the alarm's threshold as one more.
func (p *painter) lineOptions(lines []line, props ops.Properties) (opt charts.LineChartOption, right bool) {
	var values [][]float64
	var colors []charts.Color
	axes := []int{}
	add := func(v []float64, color string, onRight bool) {
		values, colors = append(values, v), append(colors, charts.ColorFromHex(cmp.Or(color, "#7f7f7f")))
		axis := 0
		if onRight {
			axis, right = 1, true
		}
		axes = append(axes, axis)
	}
	for _, l := range lines {
		if l.here {
			add(l.values, l.color, l.right)
		}
	}
	if props.Annotations != nil {
		for _, h := range props.Annotations.Horizontal {
			v := make([]float64, p.data.minutes())
			for i := range v {
				v[i] = h.Value
			}
			add(v, h.Color, h.YAxis == "right")
		}
	}
	opt = charts.NewLineChartOptionWithData(values)
	for i := range opt.SeriesList {
		opt.SeriesList[i].YAxisIndex = axes[i]
	}
	opt.Theme = charts.GetTheme(charts.ThemeLight).WithSeriesColors(colors).WithBackgroundColor(card).WithAxisSplitLineColor(grid).
		WithXAxisTextColor(faint).WithYAxisTextColor(faint).WithXAxisColor(border).WithYAxisColor(border)
	opt.Legend.Show, opt.Title.Show = new(false), new(false)
	opt.Symbol.Shape = charts.SymbolNone
	opt.LineStrokeWidth = pointWidth
	opt.Padding = charts.NewBox(0, 6, 0, 0)
	opt.ValueFormatter = number
	return opt, right
}

// number writes a value as CloudWatch does: short.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 1, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', 0, 64) + "k"
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
}
