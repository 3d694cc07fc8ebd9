package main

import (
	"context"
	"errors"
	"fmt"
)

// Step is one action that was planned: its key exists before the action is tried for the first time.
type Step struct {
	Key  string `json:"key"`
	User User   `json:"user"`
	Seen *Seen  `json:"seen,omitempty"` // what was observed; nil: not acted yet, or the agent died before it saw
}

// Seen is what an agent observes of an action.
type Seen struct {
	Status   int    `json:"status"`
	Code     string `json:"code,omitempty"`
	Replayed bool   `json:"replayed,omitempty"`
}

// Memory is the agent's state, kept where it outlives the process.
type Memory struct {
	Session string `json:"session"`
	Steps   []Step `json:"steps"`
}

// Planner decides what to do next, from everything that was seen; nil means that the goal is reached.
type Planner interface {
	Next(ctx context.Context, m Memory) (*User, error)
}

// maxSteps bounds an agent that goes in circles.
const maxSteps = 20

var errNoEnd = errors.New("the goal was not reached")

// run plans, acts and observes until the goal is reached. save is called before every action and after it: an agent that
// died goes on where it was, and acts again under the key that it had planned.
func run(ctx context.Context, p Planner, c *Caller, m *Memory, save func(Memory) error) error {
	for range maxSteps {
		step := m.open()
		if step == nil {
			user, err := p.Next(ctx, *m)
			if err != nil || user == nil {
				return err
			}
			m.Steps = append(m.Steps, Step{Key: fmt.Sprintf("%s-step-%d", m.Session, len(m.Steps)+1), User: *user})
			if err := save(*m); err != nil {
				return err
			}
			step = m.open()
		}
		a, err := c.Call(ctx, request{Session: m.Session, Key: step.Key, User: step.User})
		if err != nil {
			return err // nothing was seen: the step stays open
		}
		step.Seen = &Seen{a.Status, a.Code, a.Replayed}
		if err := save(*m); err != nil {
			return err
		}
	}
	return errNoEnd
}

// open is the step that was planned and not seen to its end.
func (m *Memory) open() *Step {
	if n := len(m.Steps); n > 0 && m.Steps[n-1].Seen == nil {
		return &m.Steps[n-1]
	}
	return nil
}

// namer is a planner that wants a user and takes another id where the one it wanted is taken. A model would do the same.
type namer struct{ want User }

var errStuck = errors.New("the planner knows nothing else to try")

func (n namer) Next(_ context.Context, m Memory) (*User, error) {
	user := n.want
	if len(m.Steps) == 0 {
		return &user, nil
	}
	switch last := m.Steps[len(m.Steps)-1]; last.Seen.Status {
	case 200:
		return nil, nil //nolint:nilnil // nil: the goal is reached
	case 409:
		user.UserID = fmt.Sprintf("%s-%d", n.want.UserID, len(m.Steps)+1)
		return &user, nil
	default:
		return nil, fmt.Errorf("%w: status %d %s", errStuck, last.Seen.Status, last.Seen.Code)
	}
}
