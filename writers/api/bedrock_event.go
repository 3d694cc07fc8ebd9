package api

import (
	"encoding/json"
	"slices"
)

// BedrockEvent is what a Bedrock agent sends to the function of an action group. ApiPath and HTTPMethod are set for an
// action group with an API schema, Function for one with function details.
type BedrockEvent struct {
	MessageVersion          string              `json:"messageVersion"`
	SessionID               string              `json:"sessionId"`
	ActionGroup             string              `json:"actionGroup"`
	APIPath                 string              `json:"apiPath,omitempty"`
	HTTPMethod              string              `json:"httpMethod,omitempty"`
	Function                string              `json:"function,omitempty"`
	Parameters              []BedrockParameter  `json:"parameters,omitempty"`
	RequestBody             *BedrockRequestBody `json:"requestBody,omitempty"`
	SessionAttributes       map[string]string   `json:"sessionAttributes,omitempty"`
	PromptSessionAttributes map[string]string   `json:"promptSessionAttributes,omitempty"`
}

// BedrockParameter is an argument that the model filled in. Value is text, whatever Type says.
type BedrockParameter struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// BedrockRequestBody is the body of an action of an API schema, by content type.
type BedrockRequestBody struct {
	Content map[string]BedrockProperties `json:"content"`
}

// BedrockProperties are the top-level members of a body.
type BedrockProperties struct {
	Properties []BedrockParameter `json:"properties"`
}

// BedrockResponse is what a Bedrock agent understands, and the only thing that it does.
type BedrockResponse struct {
	MessageVersion          string                `json:"messageVersion"`
	Response                BedrockActionResponse `json:"response"`
	SessionAttributes       map[string]string     `json:"sessionAttributes,omitempty"`
	PromptSessionAttributes map[string]string     `json:"promptSessionAttributes,omitempty"`
}

// BedrockActionResponse echoes the action. APIPath, HTTPMethod, HTTPStatusCode and ResponseBody are set for an API schema,
// Function and FunctionResponse for function details.
type BedrockActionResponse struct {
	ActionGroup      string                   `json:"actionGroup"`
	APIPath          string                   `json:"apiPath,omitempty"`
	HTTPMethod       string                   `json:"httpMethod,omitempty"`
	HTTPStatusCode   int                      `json:"httpStatusCode,omitempty"`
	ResponseBody     map[string]BedrockBody   `json:"responseBody,omitempty"`
	Function         string                   `json:"function,omitempty"`
	FunctionResponse *BedrockFunctionResponse `json:"functionResponse,omitempty"`
}

// BedrockFunctionResponse answers an action of function details. ResponseState is "" where it went well.
type BedrockFunctionResponse struct {
	ResponseState string                 `json:"responseState,omitempty"`
	ResponseBody  map[string]BedrockBody `json:"responseBody"`
}

// BedrockBody is a body. It is text, also where it is JSON.
type BedrockBody struct {
	Body string `json:"body"`
}

// The states of a function response.
const (
	BedrockReprompt = "REPROMPT" // the model goes on, and may ask the user or call again
	BedrockFailure  = "FAILURE"  // the agent's caller gets an error
)

// byAPI tells whether the action is one of an API schema.
func (e *BedrockEvent) byAPI() bool { return e.Function == "" }

// action names the action: a function, or method and path.
func (e *BedrockEvent) action() string {
	if e.byAPI() {
		return e.HTTPMethod + " " + e.APIPath
	}
	return e.Function
}

// readBedrockEvent reads an event strictly in what this door relies on: names are compared exactly, and duplicates are
// refused. Members that it does not know are left alone, since AWS adds some. It returns the rule that the event breaks.
func readBedrockEvent(raw json.RawMessage) (*BedrockEvent, string) {
	m, rule := members(raw)
	if rule != "" {
		return nil, "the event " + rule
	}
	e := &BedrockEvent{}
	for _, f := range []struct {
		name     string
		into     any
		required bool
	}{
		{"messageVersion", &e.MessageVersion, true},
		{"sessionId", &e.SessionID, true},
		{"actionGroup", &e.ActionGroup, true},
		{"apiPath", &e.APIPath, false},
		{"httpMethod", &e.HTTPMethod, false},
		{"function", &e.Function, false},
		{"sessionAttributes", &e.SessionAttributes, false},
		{"promptSessionAttributes", &e.PromptSessionAttributes, false},
	} {
		value, there := m[f.name]
		if !there && f.required {
			return nil, "the event has no " + f.name
		}
		if there && json.Unmarshal(value, f.into) != nil {
			return nil, "the event's " + f.name + " is not what an agent sends"
		}
	}
	api, function := e.APIPath != "" && e.HTTPMethod != "", e.Function != ""
	switch {
	case e.MessageVersion != bedrockVersion:
		return nil, "the event's messageVersion is not " + bedrockVersion
	case api == function || function && e.APIPath+e.HTTPMethod != "":
		return nil, "the event names neither apiPath and httpMethod nor a function, or both"
	}
	if value, there := m["parameters"]; there {
		if e.Parameters, rule = readParameters(value); rule != "" {
			return nil, "the event's parameters " + rule
		}
	}
	if value, there := m["requestBody"]; there {
		if e.RequestBody, rule = readRequestBody(value); rule != "" {
			return nil, "the event's requestBody " + rule
		}
	}
	return e, ""
}

const bedrockVersion = "1.0"

// readParameters reads a list of named values. null is an empty list.
func readParameters(raw json.RawMessage) ([]BedrockParameter, string) {
	const rule = "are not a list of name, type and value"
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, rule
	}
	var out []BedrockParameter
	for _, item := range list {
		m, bad := members(item)
		if bad != "" {
			return nil, rule
		}
		var p BedrockParameter
		for name, into := range map[string]*string{"name": &p.Name, "type": &p.Type, "value": &p.Value} {
			value, there := m[name]
			if !there && name == "type" {
				continue
			}
			if !there || text(into)(value) != "" {
				return nil, rule
			}
		}
		out = append(out, p)
	}
	return out, ""
}

// readRequestBody reads the body of one content type, JSON.
func readRequestBody(raw json.RawMessage) (*BedrockRequestBody, string) {
	if string(raw) == "null" {
		return nil, ""
	}
	const rule = `is not {"content":{"application/json":{"properties":[…]}}}`
	m, bad := members(raw)
	if bad != "" {
		return nil, rule
	}
	content, bad := members(m["content"])
	if bad != "" || len(content) > 1 || len(content) == 1 && !slices.Contains(sortedNames(content), jsonType) {
		return nil, rule
	}
	body := &BedrockRequestBody{Content: map[string]BedrockProperties{}}
	for kind, value := range content {
		inner, bad := members(value)
		if bad != "" {
			return nil, rule
		}
		list, there := inner["properties"]
		if !there {
			continue
		}
		p, bad := readParameters(list)
		if bad != "" {
			return nil, rule
		}
		body.Content[kind] = BedrockProperties{p}
	}
	return body, ""
}

const (
	jsonType = "application/json"
	textType = "TEXT"
)
