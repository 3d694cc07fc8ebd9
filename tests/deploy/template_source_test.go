package deploy_test

import (
	"regexp"
	"slices"
	"strings"
)

// sourceRules are about the template as it is written, and about samconfig.toml.
func sourceRules() []rule {
	return []rule{
		{"parameters", parameters},
		{"functions are built by make", func(v *view, bad report) {
			for id, r := range child(v.sam, "Resources") {
				o := asObject(r)
				if o["Type"] != "AWS::Serverless::Function" {
					continue
				}
				if dig(o, "Metadata", "BuildMethod") != "makefile" {
					bad("%s: the other builder adds no flags and misses changes of sibling packages", id)
				}
				if v.mains[id] == "" {
					bad("%s: make has no target build-%s", id, id)
				}
			}
		}},
		{"size", func(v *view, bad report) {
			if n := len(v.declared); n > 400 {
				bad("%d resources, CloudFormation takes 500", n)
			}
			if n := len(mustJSON(v.raw)); n > 900_000 {
				bad("%d bytes, CloudFormation takes 1 MB", n)
			}
		}},
		{"samconfig", samconfig},
		{"combinations", combinations},
	}
}

// parameters: whoever deploys learns what each does and cannot choose what will not work, and may choose nothing at all.
func parameters(v *view, bad report) {
	for id, p := range child(v.sam, "Parameters") {
		o := asObject(p)
		if len(str(o["Description"])) < 20 {
			bad("%s: what does it do?", id)
		}
		if !strings.Contains(v.file("docs/deploy.md"), "`"+id+"`") {
			bad("%s: docs/deploy.md does not name it", id)
		}
		value, ok := o["Default"]
		if !ok {
			bad("%s: no default", id)
			continue
		}
		bounded := o["AllowedValues"] != nil || o["AllowedPattern"] != nil || o["MinValue"] != nil
		if !bounded && o["Type"] != "CommaDelimitedList" {
			bad("%s: takes any value", id)
		}
		if allowed := list(o["AllowedValues"]); len(allowed) > 0 && !slices.Contains(texts(allowed), scalar(value)) {
			bad("%s: its default %v is not allowed", id, value)
		}
		if pattern := str(o["AllowedPattern"]); pattern != "" {
			if re, err := regexp.Compile("^(?:" + pattern + ")$"); err != nil || !re.MatchString(scalar(value)) {
				bad("%s: its default %q does not fit %s", id, value, pattern)
			}
		}
		if o["MinValue"] != nil && number(value) < number(o["MinValue"]) || o["MaxValue"] != nil && number(value) > number(o["MaxValue"]) {
			bad("%s: its default %v is out of bounds", id, value)
		}
	}
	if !slices.Equal(texts(dig(v.sam, "Parameters", "Stage", "AllowedValues")), []string{"dev", "staging", "prod"}) {
		bad("Stage: not dev, staging and prod")
	}
	if got := texts(dig(v.sam, "Parameters", "Architecture", "AllowedValues")); !slices.Equal(got, []string{"arm64", "x86_64"}) {
		bad("Architecture: not arm64 and x86_64")
	}
	if dig(v.sam, "Parameters", "Architecture", "Default") != "arm64" {
		bad("Architecture: not arm64 by default")
	}
}

// combinations: what cannot work together is refused before anything is made, and what can is not.
func combinations(v *view, bad report) {
	if said := refusals(v.raw, v.given); len(said) > 0 {
		bad("refused: %v", said)
	}
	for _, never := range []map[string]string{
		{"HttpAuth": "jwt"},
		{"HttpAuth": "jwt", "JwtIssuer": "https://issuer.example.com"},
		{"HttpAuth": "iam"},
		{"WarmWriteUnits": "4000"},
		{"DirectInvoker": "210987654321"},
		{"BedrockAgentArn": "arn:aws:bedrock:eu-central-1:123456789012:agent/AGENT12345"},
		{"AgentCoreGatewayRoleArn": "arn:aws:iam::123456789012:role/gateway"},
	} {
		if len(refusals(v.raw, never)) == 0 {
			bad("takes %v, which cannot work", never)
		}
	}
}

var (
	tomlSection = regexp.MustCompile(`^\[([^\]]+)\]$`)
	tomlPair    = regexp.MustCompile(`^(\w+) *= *"?(.*?)"?$`)
	override    = regexp.MustCompile(`(\w+)=("[^"]*"|\S+)`)
)

// samconfig: a stage is deployed with its own parameters, from functions that were built anew.
func samconfig(v *view, bad report) {
	of := map[string]string{}
	section := ""
	for line := range strings.Lines(v.file("samconfig.toml")) {
		line = strings.TrimSpace(line)
		if m := tomlSection.FindStringSubmatch(line); m != nil {
			section = m[1]
		} else if m := tomlPair.FindStringSubmatch(line); m != nil {
			of[section+"."+m[1]] = m[2]
		}
	}
	for _, environment := range []string{"default", "dev", "staging", "prod"} {
		read := func(command, name string) string {
			for _, in := range []string{environment + "." + command, environment + ".global"} {
				if value, ok := of[in+".parameters."+name]; ok {
					return value
				}
			}
			return ""
		}
		built := environment == "default" || of[environment+".build.parameters.cached"] != ""
		if built && (read("build", "cached") != "false" || read("build", "parallel") != "true") {
			bad("%s: SAM's cache looks at a function's own folder only and keeps stale binaries", environment)
		}
		if built && read("build", "build_in_source") != "true" {
			bad("%s: SAM would copy the whole folder, downloads included, for each function", environment)
		}
		stage := map[string]string{"default": "dev"}[environment]
		if stage == "" {
			stage = environment
		}
		overrides := strings.ReplaceAll(read("deploy", "parameter_overrides"), `\"`, `"`)
		if !strings.Contains(" "+overrides+" ", " Stage="+stage+" ") {
			bad("%s: deploys with %q", environment, overrides)
		}
		for _, m := range override.FindAllStringSubmatch(overrides, -1) {
			p := asObject(dig(v.sam, "Parameters", m[1]))
			value := strings.Trim(m[2], `"`)
			if p == nil || len(list(p["AllowedValues"])) > 0 && !slices.Contains(texts(p["AllowedValues"]), value) {
				bad("%s: the template has no parameter %s=%s", environment, m[1], value)
			}
		}
		if !strings.Contains(read("deploy", "capabilities"), "CAPABILITY_IAM") {
			bad("%s: cannot make roles", environment)
		}
		if !strings.Contains(read("deploy", "stack_name"), stage) {
			bad("%s: its stack is called %q", environment, read("deploy", "stack_name"))
		}
		if environment == "prod" && read("deploy", "confirm_changeset") != "true" {
			bad("prod: nobody sees what will change")
		}
		if !strings.Contains(read("deploy", "tags"), stage) {
			bad("%s: no tags that costs can be told by", environment)
		}
	}
}
