package whole_test

import "testing"

func TestWholeStack(t *testing.T) {
	c := startCloud(t)
	d := deploy(t, c, map[string]string{
		"Stage": "dev", "HttpAuth": "iam", "IamTenants": `{"` + account + `/planner":"acme"}`, "AdminRoles": `["` + account + `/ops"]`,
		"DirectDoor": "true", "BedrockDoor": "true", "AgentCoreDoor": "true", "SubscriberExample": "true", "ClockSkewSeconds": "1",
	})
	t.Log(d.outputs)
	t.Log(d.ids)
}
