package identity

import (
	"maps"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/annotation"
)

// cloud is what the checks know of a provider: the names of its settings.
type cloud struct {
	// name is that of the cloud, service that of its token service.
	name, service string
	// audiences are those of its tokens, one for each partition. The first is the default.
	audiences []string
	// annotations are its keys. required must be set; audienceKey replaces the audience.
	annotations           []string
	required, audienceKey string
	// example is the value of required, to be filled in.
	example string
	// labelling adds the label of pods to a sentence. uninjected are the reasons of a webhook that leaves a pod alone.
	labelling  string
	uninjected []string
	// tokenFile, identity and tenant are the variables that the webhook sets.
	tokenFile, identity, tenant string
	// hiding are variables that make SDKs use another identity.
	hiding []string
	// readsIssuer means that the cloud reads the keys from the issuer.
	readsIssuer bool
}

func cloudOf(provider string) cloud {
	switch provider {
	case "aws":
		return cloud{name: "AWS", service: "AWS STS", audiences: []string{"sts.amazonaws.com", "sts.amazonaws.com.cn"},
			annotations: []string{annotation.AWSRoleARN, annotation.AWSAudience, annotation.AWSTokenExpiration, "eks.amazonaws.com/sts-regional-endpoints"},
			required:    annotation.AWSRoleARN, audienceKey: annotation.AWSAudience, example: "arn:aws:iam::ACCOUNT_ID:role/ROLE_NAME",
			uninjected: []string{"the cluster is not EKS and has no Amazon EKS Pod Identity Webhook", "the template sets AWS_ROLE_ARN itself", "its annotation eks.amazonaws.com/skip-containers"},
			tokenFile:  "AWS_WEB_IDENTITY_TOKEN_FILE", identity: "AWS_ROLE_ARN",
			hiding: []string{"AWS_ACCESS_KEY_ID"}, readsIssuer: true}
	case "azure":
		return cloud{name: "Azure", service: "Microsoft Entra ID",
			audiences:   []string{"api://AzureADTokenExchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina"},
			annotations: []string{annotation.AzureClientID, annotation.AzureTenantID, annotation.AzureTokenExpiration},
			required:    annotation.AzureClientID, example: "CLIENT_ID", labelling: `, label the pod's template azure.workload.identity/use: "true"`,
			uninjected: []string{`its template lacks the label azure.workload.identity/use: "true"`, "Azure Workload Identity is not installed", "its annotation azure.workload.identity/skip-containers"},
			tokenFile:  "AZURE_FEDERATED_TOKEN_FILE", identity: "AZURE_CLIENT_ID", tenant: "AZURE_TENANT_ID",
			hiding: []string{"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH"}, readsIssuer: true}
	case "gcp":
		return cloud{name: "Google Cloud", service: "Google STS", audiences: []string{"//iam.googleapis.com/PROVIDER"},
			annotations: []string{annotation.GCPServiceAccount, annotation.GCPWorkloadIdentityProvider}, readsIssuer: true}
	}
	return cloud{name: provider, service: provider}
}

// miss is a key that was meant to be one of ours: misspelt, or a label in place of an annotation.
type miss struct{ wrote, meant, key, value string }

// nearMiss finds one. Its wrote is empty if there is none.
func (c *cloud) nearMiss(annotations, labels map[string]string) miss {
	for i, written := range []map[string]string{annotations, labels} {
		for _, key := range slices.Sorted(maps.Keys(written)) {
			at := slices.IndexFunc(c.annotations, func(want string) bool {
				return (i == 1 || !slices.Contains(c.annotations, key)) && annotations[want] == "" && alike(key, want)
			})
			switch {
			case at >= 0 && i == 0:
				return miss{key, c.annotations[at], c.annotations[at], written[key]}
			case at >= 0:
				return miss{key + " (a label)", c.annotations[at] + " (an annotation)", c.annotations[at], written[key]}
			}
		}
	}
	return miss{}
}

// alike reports whether two words differ in case, separators or up to three adjacent characters.
func alike(a, b string) bool {
	plain := strings.NewReplacer("-", "", "_", "", ".", "", "/", "")
	a, b = plain.Replace(strings.ToLower(a)), plain.Replace(strings.ToLower(b))
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	const most = 3
	return max(len(a), len(b)) <= most
}

// nearAudience returns the known audience that a misspelt one was meant to be. It is empty for a known audience, and for one that
// resembles none.
func (e *examination) nearAudience(audience string) string {
	known := e.cloud.audiences
	if provider := e.serviceAccount().Annotations[annotation.GCPWorkloadIdentityProvider]; e.Provider.GetName() == "gcp" {
		known = []string{"//iam.googleapis.com/" + provider, "https://iam.googleapis.com/" + provider}
	}
	if slices.Contains(known, audience) {
		return ""
	}
	if i := slices.IndexFunc(known, func(k string) bool { return alike(audience, k) }); i >= 0 {
		return known[i]
	}
	return ""
}
