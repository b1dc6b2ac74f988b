package identity

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
)

// checkSource checks the environment of a pod's process. For controllers the ServiceAccount alone counts.
func (e *examination) checkSource(ctx context.Context) doctor.Finding {
	if !e.InPod {
		if e.own() {
			return doctor.Passed("The process's own identity is examined, as the SDK finds it.")
		}
		return doctor.Passed("The ServiceAccount alone counts; the environment is ignored.")
	}
	for _, name := range e.cloud.hiding {
		if e.Getenv(name) != "" {
			return hides(name, "the environment")
		}
	}
	if f, missing := e.notInjected(); missing {
		return f
	}
	if path := e.Getenv(googleFile); e.Provider.GetName() == "gcp" && path != "" {
		return checkGoogleFile(ctx, path)
	}
	return doctor.Passed("Nothing in the environment hides the identity of the ServiceAccount.")
}

func hides(variable, where string) doctor.Finding {
	return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Remove "+variable+" from the pod's template."),
		"%s in %s hides the identity of the ServiceAccount.", variable, where)
}

// notInjected checks what the webhook should have put into the environment.
func (e *examination) notInjected() (doctor.Finding, bool) {
	if e.cloud.tokenFile == "" || e.ServiceAccount.Name != "" || e.usesAgent() {
		return doctor.Finding{}, false
	}
	for _, name := range []string{e.cloud.tokenFile, e.cloud.identity} {
		if e.Getenv(name) != "" || name == e.cloud.tokenFile && e.TokenFile != "" {
			continue
		}
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Annotate the ServiceAccount with "+e.cloud.required+e.cloud.labelling+" and restart the pod."),
			"%s is not set: the webhook has not changed this pod.", name), true
	}
	return doctor.Finding{}, false
}

// googleFile is the variable that Google's SDKs read first.
const googleFile = "GOOGLE_APPLICATION_CREDENTIALS"

// checkGoogleFile distinguishes a file that describes the use of the pod's token from one with credentials of its own.
func checkGoogleFile(ctx context.Context, path string) doctor.Finding {
	content, err := readFile(ctx, path)
	var file struct {
		Type string `json:"type"`
	}
	if err == nil && json.Unmarshal([]byte(content), &file) == nil && file.Type == "external_account" {
		return doctor.Passed("The file in %s describes how the pod's token is used.", googleFile)
	}
	return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Remove "+googleFile+" from the pod's template, or let it name a file of type external_account."),
		"The file in %s hides the identity of the ServiceAccount.", googleFile).Compare("type", cmp.Or(file.Type, "unknown"), "expected", "external_account")
}
