package ops

import "errors"

// Errors of this package, to be matched with errors.Is.
var (
	// ErrUnknownMetric says that a widget or an alarm names a metric, a dimension or a statistic that nobody emits.
	ErrUnknownMetric = errors.New("unknown metric")
	// ErrBody says that a dashboard is not one that CloudWatch takes.
	ErrBody = errors.New("dashboard body")
	// ErrAlarm says that an alarm is not one that CloudWatch takes, or leaves open what it must say.
	ErrAlarm = errors.New("alarm")
	// ErrTemplate says that a template has no place for what is generated.
	ErrTemplate = errors.New("template")
	// ErrName says that a name which a body needs was not given.
	ErrName = errors.New("name not known")
)
