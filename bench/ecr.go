package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/workloadid/workloadid/cloudtest"
)

// plainPasswords takes the colons out of the fake registry's passwords, with
// which the reference refuses them.
func (w *environment) plainPasswords() (end func()) {
	return w.cloud.AddFault(cloudtest.Fault{Service: "ecr", Rewrite: func(body []byte) []byte {
		var answer struct {
			AuthorizationData []map[string]any `json:"authorizationData"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return body
		}
		for _, data := range answer.AuthorizationData {
			encoded, _ := data["authorizationToken"].(string)
			if token, err := base64.StdEncoding.DecodeString(encoded); err == nil {
				user, password, _ := strings.Cut(string(token), ":")
				token = []byte(user + ":" + strings.ReplaceAll(password, ":", "_"))
				data["authorizationToken"] = base64.StdEncoding.EncodeToString(token)
			}
		}
		rewritten, err := json.Marshal(answer)
		if err != nil {
			return body
		}
		return rewritten
	}})
}
