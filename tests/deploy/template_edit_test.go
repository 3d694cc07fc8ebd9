package deploy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// edit is one change of a template. It fails where the template has no such place, so that no mutant is caught for nothing.
type edit func(template object) error

// step goes down one name of a path: a field, an index, or Field=Value for the element of a list that has it. It answers the
// value and how to put another in its place; nil takes it away.
func step(at any, name string) (any, func(any), error) {
	switch at := at.(type) {
	case object:
		value, ok := at[name]
		if !ok {
			return nil, nil, fmt.Errorf("no %s", name)
		}
		return value, func(v any) {
			if v == nil {
				delete(at, name)
				return
			}
			at[name] = v
		}, nil
	case []any:
		i, err := strconv.Atoi(name)
		if field, want, ok := strings.Cut(name, "="); ok {
			i = slices.IndexFunc(at, func(e any) bool { return scalar(asObject(e)[field]) == want })
		} else if err != nil {
			return nil, nil, fmt.Errorf("no element %s", name)
		}
		if i < 0 || i >= len(at) {
			return nil, nil, fmt.Errorf("no element %s", name)
		}
		return at[i], func(v any) { at[i] = v }, nil
	}
	return nil, nil, fmt.Errorf("nothing below to look for %s in", name)
}

// find goes down a path from the template's resources, or from its root where it begins with a slash.
func find(template object, path string) (any, func(any), error) {
	at := template["Resources"]
	if strings.HasPrefix(path, "/") {
		at, path = template, path[1:]
	}
	var put func(any)
	var err error
	for name := range strings.SplitSeq(path, "/") {
		if at, put, err = step(at, name); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return at, put, nil
}

// put replaces what is at a path.
func put(path string, value any) edit {
	return func(t object) error {
		_, set, err := find(t, path)
		if err != nil {
			return err
		}
		set(value)
		return nil
	}
}

// drop takes away a field.
func drop(path string) edit { return put(path, nil) }

// add gives an object a field, or a list an element, that it has not.
func add(path, name string, value any) edit {
	return func(t object) error {
		at, set, err := find(t, path)
		if err != nil {
			return err
		}
		switch at := at.(type) {
		case object:
			if _, ok := at[name]; ok {
				return fmt.Errorf("%s has a %s", path, name)
			}
			at[name] = value
		case []any:
			set(append(at, value))
		default:
			set([]any{at, value})
		}
		return nil
	}
}

// without takes an element out of a list: the one that has Field=Value, or the value itself.
func without(path, which string) edit {
	return func(t object) error {
		at, set, err := find(t, path)
		if err != nil {
			return err
		}
		field, want, _ := strings.Cut(which, "=")
		left := slices.DeleteFunc(slices.Clone(list(at)), func(e any) bool {
			return e == any(which) || asObject(e) != nil && scalar(asObject(e)[field]) == want
		})
		if len(left) == len(list(at)) {
			return fmt.Errorf("%s has no %s", path, which)
		}
		set(left)
		return nil
	}
}

// reword replaces text in all strings below a path.
func reword(path, old, replacement string) edit {
	return func(t object) error {
		at, set, err := find(t, path)
		if err != nil {
			return err
		}
		before, err := json.Marshal(at)
		if err != nil {
			return err
		}
		after := rewordIn(at, old, replacement)
		if mustJSON(after) == string(before) {
			return fmt.Errorf("%s does not say %s", path, old)
		}
		set(after)
		return nil
	}
}

func rewordIn(v any, old, replacement string) any {
	switch v := v.(type) {
	case string:
		return strings.Replace(v, old, replacement, 1)
	case []any:
		for i := range v {
			v[i] = rewordIn(v[i], old, replacement)
		}
	case object:
		for k := range v {
			v[k] = rewordIn(v[k], old, replacement)
		}
	}
	return v
}

// att is what the template writes as !GetAtt.
func att(id, attribute string) object { return object{"Fn::GetAtt": []any{id, attribute}} }

// ref is what it writes as !Ref.
func ref(id string) object { return object{"Ref": id} }

// granting adds a statement to a role's first policy.
func granting(role string, actions any, resource any, condition object) edit {
	s := object{"Sid": "Added", "Effect": "Allow", "Action": actions, "Resource": resource}
	if condition != nil {
		s["Condition"] = condition
	}
	return add(policyOf(role), "", s)
}

func policyOf(role string) string { return role + "/Properties/Policies/0/PolicyDocument/Statement" }
