package cloudtest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/workloadid/workloadid/internal/azurename"
)

// serveDevOps answers the first request of Git to a repository of Azure DevOps.
func (a *Azure) serveDevOps(w http.ResponseWriter, r *http.Request, host string) {
	path, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/info/refs")
	if organization, found := strings.CutSuffix(strings.ToLower(host), ".visualstudio.com"); found {
		path = organization + "/" + path
	}
	call := Call{Service: "azuredevops", Action: "info/refs", Host: host,
		Parameters: map[string]string{"repository": path}}
	fault, answer := a.cloud.begin(w, r, call, func(f Fault) { http.Error(w, f.Message, f.Status) })
	if !answer {
		return
	}
	a.mu.Lock()
	readers, known := a.repositories[path]
	a.mu.Unlock()
	identity, valid := a.bearer(bearerOf(r), azurename.DevOpsAudience)
	switch {
	case !valid:
		w.Header().Set("Www-Authenticate", `Bearer authorization_uri=https://login.microsoftonline.com/common`)
		http.Error(w, "TF400813: The user '' is not authorized to access this resource.", http.StatusUnauthorized)
	case !ok || !known || !oneOf(readers, identity.ClientID):
		http.Error(w,
			fmt.Sprintf(
				"TF401019: The Git repository with name or identifier %s does not exist or you do not have permissions for the operation you are attempting.",
				path[strings.LastIndexByte(path, '/')+1:]), http.StatusNotFound)
	default:
		a.cloud.sendGitRefs(w, r, fault)
	}
}
