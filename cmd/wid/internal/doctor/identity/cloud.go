package identity

import (
	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/annotation"
)

// cloud holds the names of a provider's settings. A service without settings is
// not a cloud, and reads no issuer's documents.
type cloud struct {
	// name is the name of the cloud, service the name of its token service.
	name, service string
	// settings are the annotations that a call needs. The first names the
	// identity.
	settings []setting
	// tokenFile is the variable that the webhook sets to the path of the token,
	// "" without a webhook.
	tokenFile string
	// hiding are variables that make SDKs use another identity.
	hiding []string
}

// setting is an annotation, the variable that the webhook makes of it, and a
// value to be filled in.
type setting struct{ annotation, variable, example string }

// cloudNamed returns the zero value for a service that is not a cloud.
func cloudNamed(name string) cloud {
	switch name {
	case "aws":
		return cloud{name: "AWS", service: "AWS STS", tokenFile: "AWS_WEB_IDENTITY_TOKEN_FILE",
			hiding:   []string{"AWS_ACCESS_KEY_ID"},
			settings: []setting{{annotation.AWSRoleARN, "AWS_ROLE_ARN", "arn:aws:iam::ACCOUNT_ID:role/ROLE_NAME"}}}
	case "azure":
		return cloud{name: "Azure", service: "Microsoft Entra ID", tokenFile: "AZURE_FEDERATED_TOKEN_FILE",
			hiding: []string{"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH"},
			settings: []setting{{annotation.AzureClientID, "AZURE_CLIENT_ID", "CLIENT_ID"},
				{annotation.AzureTenantID, "AZURE_TENANT_ID", "TENANT_ID"}}}
	case "gcp":
		return cloud{name: "Google Cloud", service: "Google STS",
			settings: []setting{{annotation.GCPWorkloadIdentityProvider, "",
				"projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"}}}
	}
	return cloud{}
}

func cloudOf(p auth.Provider) cloud {
	if p == nil { // see Detect
		return cloud{}
	}
	if c := cloudNamed(p.GetName()); c.trustsIssuers() {
		return c
	}
	if s, ok := p.(interface{ ServiceName() string }); ok {
		return cloud{name: s.ServiceName(), service: s.ServiceName()}
	}
	return cloud{name: p.GetName(), service: p.GetName()}
}

func (c *cloud) trustsIssuers() bool { return len(c.settings) > 0 }

// title names the provider in a report: a cloud as --provider does, a service
// in its own spelling.
func (e *examination) title() string {
	if e.cloud.trustsIssuers() {
		return e.Provider.GetName()
	}
	return e.cloud.name
}
