package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// stack is a transformed template as CloudFormation sees it with given parameters: conditions decided, functions
// evaluated. What only a deployment knows is written ${Resource} and ${Resource.Attribute} in the strings.
type stack struct {
	name      string
	params    map[string]any
	conds     map[string]bool
	resources map[string]*resource
	outputs   map[string]object
	problems  []string // found while evaluating
	raw       object
	declared  object // all resources, whatever their condition
}

// resource is one that this stack has.
type resource struct {
	id, kind string
	attrs    object // DeletionPolicy and the like
	props    object // evaluated
}

// pseudo are the parameters that CloudFormation brings.
func pseudo(name string) map[string]any {
	return map[string]any{
		"AWS::AccountId": "123456789012", "AWS::Partition": "aws", "AWS::Region": "eu-central-1", "AWS::StackName": name,
		"AWS::StackId": "arn:aws:cloudformation:eu-central-1:123456789012:stack/" + name + "/1", "AWS::URLSuffix": "amazonaws.com",
	}
}

// evaluate decides what a stack of this template and these parameters has.
func evaluate(name string, template object, params map[string]string) *stack {
	s := &stack{
		name: name, raw: template, params: pseudo("toolledger-test"), conds: map[string]bool{}, resources: map[string]*resource{},
		outputs: map[string]object{},
	}
	for id, p := range child(template, "Parameters") {
		s.params[id] = asObject(p)["Default"]
		if v, ok := params[id]; ok {
			s.params[id] = v
		}
		if strings.HasPrefix(str(asObject(p)["Type"]), "CommaDelimitedList") || strings.HasPrefix(str(asObject(p)["Type"]), "List<") {
			s.params[id] = splitList(str(s.params[id]))
		}
	}
	for id := range params {
		if _, ok := child(template, "Parameters")[id]; !ok {
			s.problem("the template has no parameter %s", id)
		}
	}
	s.declared = child(template, "Resources")
	for _, id := range sorted(child(template, "Conditions")) {
		s.condition(id, 0)
	}
	for _, id := range sorted(s.declared) {
		r := asObject(s.declared[id])
		if c := str(r["Condition"]); c != "" && !s.condition(c, 0) {
			continue
		}
		s.resources[id] = &resource{id: id, kind: str(r["Type"]), attrs: r}
	}
	for _, id := range sorted(s.resources) {
		r := s.resources[id]
		r.props = asObject(s.eval("Resources/"+id, r.attrs["Properties"]))
		for _, on := range list(r.attrs["DependsOn"]) {
			s.reach("Resources/"+id+"/DependsOn", str(on))
		}
	}
	for id, o := range child(template, "Outputs") {
		if c := str(asObject(o)["Condition"]); c == "" || s.condition(c, 0) {
			s.outputs[id] = asObject(s.eval("Outputs/"+id, o))
		}
	}
	return s
}

func splitList(text string) []any {
	if text == "" {
		return []any{}
	}
	var l []any
	for v := range strings.SplitSeq(text, ",") {
		l = append(l, strings.TrimSpace(v))
	}
	return l
}

func (s *stack) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// condition decides a condition by its name.
func (s *stack) condition(id string, depth int) bool {
	if v, ok := s.conds[id]; ok {
		return v
	}
	c, ok := child(s.raw, "Conditions")[id]
	if !ok || depth > 20 {
		s.problem("condition %s is not defined", id)
		return false
	}
	v := s.decide(c, depth)
	s.conds[id] = v
	return v
}

// refusals are what the template's rules have against parameters: a deployment with these never begins.
func refusals(template object, params map[string]string) []string {
	s := &stack{raw: template, params: pseudo("toolledger-test"), conds: map[string]bool{}}
	for id, p := range child(template, "Parameters") {
		s.params[id] = asObject(p)["Default"]
		if v, ok := params[id]; ok {
			s.params[id] = v
		}
	}
	var all []string
	for _, id := range sorted(child(template, "Rules")) {
		r := asObject(child(template, "Rules")[id])
		if c, ok := r["RuleCondition"]; ok && !s.decide(c, 0) {
			continue
		}
		for _, a := range list(r["Assertions"]) {
			if !s.decide(asObject(a)["Assert"], 0) {
				all = append(all, str(asObject(a)["AssertDescription"]))
			}
		}
	}
	return append(all, s.problems...)
}

// decide evaluates a condition's function.
func (s *stack) decide(v any, depth int) bool {
	o, ok := v.(object)
	if !ok || len(o) != 1 {
		s.problem("condition %v is no function", v)
		return false
	}
	for name, arg := range o {
		args := list(arg)
		switch name {
		case "Condition":
			return s.condition(str(arg), depth+1)
		case "Fn::Not":
			return len(args) == 1 && !s.decide(args[0], depth)
		case "Fn::And":
			return !slices.ContainsFunc(args, func(a any) bool { return !s.decide(a, depth) })
		case "Fn::Or":
			return slices.ContainsFunc(args, func(a any) bool { return s.decide(a, depth) })
		case "Fn::Equals":
			return len(args) == 2 && scalar(s.eval("Conditions", args[0])) == scalar(s.eval("Conditions", args[1]))
		default:
			s.problem("condition function %s is not known", name)
		}
	}
	return false
}

// noValue stands for AWS::NoValue until its parent drops it.
type noValue struct{}

// eval evaluates the functions in a value of the template.
func (s *stack) eval(path string, v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, 0, len(v))
		for i, e := range v {
			if r := s.eval(fmt.Sprintf("%s/%d", path, i), e); r != (noValue{}) {
				out = append(out, r)
			}
		}
		return out
	case object:
		if len(v) == 1 {
			for name, arg := range v {
				if name == "Ref" || name == "Fn::If" || strings.HasPrefix(name, "Fn::") {
					return s.call(path, name, arg)
				}
			}
		}
		out := object{}
		for k, e := range v {
			r := s.eval(path+"/"+k, e)
			if _, gone := r.(noValue); !gone {
				out[k] = r
			}
		}
		return out
	}
	return v
}

func (s *stack) call(path, name string, arg any) any {
	args := list(arg)
	switch name {
	case "Ref":
		return s.ref(path, str(arg))
	case "Fn::GetAtt":
		if text, ok := arg.(string); ok {
			id, attribute, _ := strings.Cut(text, ".")
			args = []any{id, attribute}
		}
		if len(args) != 2 {
			s.problem("%s: Fn::GetAtt wants a resource and an attribute", path)
			return ""
		}
		s.reach(path, str(args[0]))
		return "${" + str(args[0]) + "." + str(args[1]) + "}"
	case "Fn::If":
		if len(args) != 3 {
			s.problem("%s: Fn::If wants three arguments", path)
			return ""
		}
		if s.condition(str(args[0]), 0) {
			return s.eval(path, args[1])
		}
		return s.eval(path, args[2])
	case "Fn::Sub":
		return s.sub(path, arg)
	case "Fn::Join":
		if len(args) == 2 {
			var parts []string
			for _, p := range list(s.eval(path, args[1])) {
				parts = append(parts, scalar(p))
			}
			return strings.Join(parts, str(args[0]))
		}
	case "Fn::Split":
		if len(args) == 2 {
			var parts []any
			for p := range strings.SplitSeq(str(s.eval(path, args[1])), str(args[0])) {
				parts = append(parts, p)
			}
			return parts
		}
	case "Fn::Select":
		if len(args) == 2 {
			of := list(s.eval(path, args[1]))
			if i := int(number(args[0])); i >= 0 && i < len(of) {
				return of[i]
			}
		}
	case "Fn::FindInMap":
		if len(args) == 3 {
			return dig(s.raw, "Mappings", scalar(s.eval(path, args[0])), scalar(s.eval(path, args[1])), scalar(s.eval(path, args[2])))
		}
	case "Fn::ToJsonString":
		if b, err := json.Marshal(s.eval(path, arg)); err == nil {
			return string(b)
		}
	}
	s.problem("%s: cannot evaluate %s", path, name)
	return ""
}

func (s *stack) ref(path, id string) any {
	if id == "AWS::NoValue" {
		return noValue{}
	}
	if v, ok := s.params[id]; ok {
		return v
	}
	s.reach(path, id)
	return "${" + id + "}"
}

// reach finds fault with a reference to what this stack does not have: its deployment would fail.
func (s *stack) reach(path, id string) {
	if _, ok := s.resources[id]; !ok {
		s.problem("%s refers to %s, which this stack does not have", path, id)
	}
}

var variable = regexp.MustCompile(`\$\{([^!}][^}]*)\}`)

func (s *stack) sub(path string, arg any) any {
	format, vars := str(arg), object{}
	if args, ok := arg.([]any); ok && len(args) == 2 {
		format, vars = str(args[0]), asObject(args[1])
	}
	text := variable.ReplaceAllStringFunc(format, func(m string) string {
		name := strings.TrimSpace(m[2 : len(m)-1])
		if v, ok := vars[name]; ok {
			return scalar(s.eval(path, v))
		}
		id, _, attribute := strings.Cut(name, ".")
		if attribute {
			s.reach(path, id)
			return "${" + name + "}"
		}
		return scalar(s.ref(path, name))
	})
	return strings.ReplaceAll(text, "${!", "${")
}

// of lists the stack's resources of a kind by their id.
func (s *stack) of(kind string) []*resource {
	var all []*resource
	for _, id := range sorted(s.resources) {
		if r := s.resources[id]; r.kind == kind {
			all = append(all, r)
		}
	}
	return all
}

// target is the resource that a value stands for, as its name or its ARN; nil where it is none.
func (s *stack) target(v any) *resource {
	m := variable.FindStringSubmatch(str(v))
	if m == nil || m[0] != str(v) {
		return nil
	}
	id, _, _ := strings.Cut(m[1], ".")
	return s.resources[id]
}

// Readers of JSON values: what is not there, or something else, reads as the zero value.

func asObject(v any) object {
	o, _ := v.(object)
	return o
}

func child(o object, name string) object { return asObject(o[name]) }

// dig follows names down objects.
func dig(v any, names ...string) any {
	for _, n := range names {
		v = asObject(v)[n]
	}
	return v
}

func str(v any) string {
	text, _ := v.(string)
	return text
}

// list is v as a list: a single value is a list of one.
func list(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

func texts(v any) []string {
	var all []string
	for _, e := range list(v) {
		all = append(all, scalar(e))
	}
	return all
}

// scalar is a value as CloudFormation writes it into a string.
func scalar(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64, bool:
		b, _ := json.Marshal(v)
		return string(b)
	}
	return fmt.Sprint(v)
}

// number reads numbers and the strings of number parameters; -1<<31 for anything else.
func number(v any) float64 {
	var f float64
	if json.Unmarshal([]byte(scalar(v)), &f) != nil {
		return -1 << 31
	}
	return f
}

// yes reads true and the string that a template may write for it.
func yes(v any) bool { return scalar(v) == "true" }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
