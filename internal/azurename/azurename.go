// Package azurename knows the names of Microsoft Azure: clouds, tenants,
// clients, registries, clusters.
package azurename

import "strings"

// Cloud holds the names that differ between the clouds of Microsoft.
type Cloud struct {
	// Name appears in messages.
	Name string
	// Authorities are the hosts of its token service, the default first.
	Authorities []string
	// ManagementHost is the host of Azure Resource Manager, ManagementAudience
	// the audience of its tokens.
	ManagementHost, ManagementAudience string
	// RegistrySuffix ends the names of its container registries, without a dot
	// before it.
	RegistrySuffix string
	// BlobSuffix is the same for its blob storage.
	BlobSuffix string
	// GraphHost is the host of Microsoft Graph.
	GraphHost string
	// FederatedAudience is the audience of federated credentials that
	// Microsoft documents for the cloud.
	FederatedAudience string
}

// Clouds returns Microsoft's clouds, the public one first. Azure Germany has
// closed.
func Clouds() []Cloud {
	return []Cloud{
		{
			Name:           "Azure",
			Authorities:    []string{"login.microsoftonline.com", "login.windows.net", "login.microsoft.com"},
			ManagementHost: "management.azure.com", ManagementAudience: "https://management.azure.com",
			RegistrySuffix: "azurecr.io", BlobSuffix: "blob.core.windows.net", GraphHost: "graph.microsoft.com",
			FederatedAudience: FederatedAudience,
		},
		{
			Name:           "Azure China",
			Authorities:    []string{"login.chinacloudapi.cn", "login.partner.microsoftonline.cn"},
			ManagementHost: "management.chinacloudapi.cn", ManagementAudience: "https://management.core.chinacloudapi.cn",
			RegistrySuffix: "azurecr.cn", BlobSuffix: "blob.core.chinacloudapi.cn", GraphHost: "microsoftgraph.chinacloudapi.cn",
			FederatedAudience: FederatedAudience + "China",
		},
		{
			Name:           "Azure US Government",
			Authorities:    []string{"login.microsoftonline.us"},
			ManagementHost: "management.usgovcloudapi.net", ManagementAudience: "https://management.core.usgovcloudapi.net",
			RegistrySuffix: "azurecr.us", BlobSuffix: "blob.core.usgovcloudapi.net", GraphHost: "graph.microsoft.us",
			FederatedAudience: FederatedAudience + "USGov",
		},
	}
}

// The audiences of access tokens, the same in all clouds, and the audience of
// federated credentials in the public cloud.
const (
	RegistryAudience  = "https://containerregistry.azure.net"
	ClusterAudience   = "6dae42f8-4368-4678-94ff-3960e28e3630" // the server application of AKS
	DevOpsAudience    = "499b84ac-1321-427f-aa17-267ca6975798"
	StorageAudience   = "https://storage.azure.com"
	FederatedAudience = "api://AzureADTokenExchange"
)

// ValidGUID reports whether s has the form of a GUID: 8-4-4-4-12 hexadecimal
// digits.
func ValidGUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
		default:
			if c := s[i] | 0x20; (s[i] < '0' || s[i] > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// ValidTenant reports whether s can name a tenant: a GUID, or a domain. The
// words that stand for any tenant (common, organizations, consumers) are not
// domains.
func ValidTenant(s string) bool { return ValidGUID(s) || validDomain(s) }

// validDomain is a DNS name of two labels or more.
func validDomain(s string) bool {
	const maxName = 253
	if len(s) > maxName {
		return false
	}
	labels, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if !alphanumeric(s[i]) && s[i] != '-' {
				return false
			}
			continue
		}
		label := s[start:i]
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		labels, start = labels+1, i+1
	}
	return labels > 1
}

// ClosedRegistrySuffix ended the names of container registries in Azure
// Germany, which has closed.
const ClosedRegistrySuffix = "azurecr.de"

// IsRegistry reports whether host, in lower case, is a login server of a
// container registry below suffix:
//
//	<5 to 50 letters and digits>[-<letters and digits>].<suffix>
//	<the same>.<region>.geo.<suffix>
//
// The part after the hyphen is the hash of registries with a domain name label
// scope. The second form is one replica of a registry.
func IsRegistry(host, suffix string) bool {
	name, ok := below(host, suffix)
	if replica, regional := strings.CutSuffix(name, ".geo"); ok && regional {
		name, ok = nameOf(replica)
	}
	return ok && isRegistryName(name)
}

// IsRegistryData reports whether host, in lower case, is a data endpoint of a
// registry, <name>.<region>.data.<suffix>. Login servers redirect downloads to
// it, with an address that needs no credential.
func IsRegistryData(host, suffix string) bool {
	rest, ok := below(host, suffix)
	endpoint, data := strings.CutSuffix(rest, ".data")
	name, ofRegion := nameOf(endpoint)
	return ok && data && ofRegion && isRegistryName(name)
}

// InRegistryDomain reports whether host, in lower case, is suffix or a name
// below it.
func InRegistryDomain(host, suffix string) bool {
	_, ok := below(host, suffix)
	return ok || suffix != "" && host == suffix
}

// below returns the part of a host before "." and suffix.
func below(host, suffix string) (name string, ok bool) {
	name, ok = strings.CutSuffix(host, suffix)
	if !ok || suffix == "" {
		return "", false
	}
	return strings.CutSuffix(name, ".")
}

// nameOf returns the name in <name>.<region>.
func nameOf(replica string) (name string, ok bool) {
	name, region, ok := strings.Cut(replica, ".")
	return name, ok && isLabel(region)
}

func isRegistryName(label string) bool {
	const minName, maxName = 5, 50
	name, hash, hashed := strings.Cut(label, "-")
	return len(name) >= minName && len(name) <= maxName && len(label) <= maxLabel && isLabel(name) &&
		(!hashed || isLabel(hash))
}

const maxLabel = 63

// isLabel reports whether s is letters and digits, as many as a DNS name
// allows.
func isLabel(s string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) {
			return false
		}
	}
	return s != "" && len(s) <= maxLabel
}

// IsDevOps reports whether host, in lower case, serves Git repositories of
// Azure DevOps over HTTPS: dev.azure.com and <organization>.visualstudio.com.
func IsDevOps(host string) bool {
	if host == "dev.azure.com" {
		return true
	}
	const suffix = ".visualstudio.com"
	organization, ok := strings.CutSuffix(host, suffix)
	if !ok || organization == "" || len(organization) > maxLabel || isReserved(organization) {
		return false
	}
	for i := range len(organization) {
		if !alphanumeric(organization[i]) && organization[i] != '-' {
			return false
		}
	}
	return organization[0] != '-' && organization[len(organization)-1] != '-'
}

// isReserved recognizes hosts below visualstudio.com that belong to no
// organization.
func isReserved(label string) bool {
	switch label {
	case "ssh", "vs-ssh", "www", "app", "marketplace":
		return true
	}
	return false
}

// Cluster is the name of a managed cluster in Azure Resource Manager.
type Cluster struct {
	Subscription, ResourceGroup, Name string
}

// ParseCluster parses
//
//	/subscriptions/<GUID>/resourceGroups/<name>/providers/Microsoft.ContainerService/managedClusters/<name>
//
// whose fixed parts may be in any case.
func ParseCluster(id string) (Cluster, bool) {
	const maxID, parts = 400, 9
	if len(id) > maxID {
		return Cluster{}, false
	}
	p := strings.Split(id, "/")
	if len(p) != parts || p[0] != "" || !strings.EqualFold(p[1], "subscriptions") ||
		!strings.EqualFold(p[3], "resourceGroups") ||
		!strings.EqualFold(p[5], "providers") || !strings.EqualFold(p[6], "Microsoft.ContainerService") ||
		!strings.EqualFold(p[7], "managedClusters") {
		return Cluster{}, false
	}
	c := Cluster{Subscription: p[2], ResourceGroup: p[4], Name: p[8]}
	return c, ValidGUID(c.Subscription) && validResourceGroup(c.ResourceGroup) && validClusterName(c.Name)
}

// Path returns the name as Azure Resource Manager writes it.
func (c Cluster) Path() string {
	return "/subscriptions/" + c.Subscription + "/resourceGroups/" + c.ResourceGroup +
		"/providers/Microsoft.ContainerService/managedClusters/" + c.Name
}

func validResourceGroup(s string) bool {
	const maxName = 90
	for i := range len(s) {
		if !alphanumeric(s[i]) && !strings.ContainsRune("-_.()", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= maxName && s[len(s)-1] != '.'
}

func validClusterName(s string) bool {
	const maxName = 63
	for i := range len(s) {
		if !alphanumeric(s[i]) && s[i] != '-' && s[i] != '_' {
			return false
		}
	}
	return s != "" && len(s) <= maxName && alphanumeric(s[0]) && alphanumeric(s[len(s)-1])
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
