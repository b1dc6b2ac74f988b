package doctor

import (
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/annotation"
)

// cloud is what the checks know of a provider: the names of its settings, and which error class is evidence for what.
type cloud struct {
	name string
	// audience is what the provider's tokens usually have. It only goes into messages.
	audience string
	// audiences are those that the provider's tokens have in each of its partitions.
	audiences []string
	// annotations and labels are the keys that mean something.
	annotations, labels []string
	// required is the annotation that says who to be. Empty: there is none.
	required string
	// tokenFile, identity and tenant are the variables that the webhook sets in a pod.
	tokenFile, identity, tenant string
	// hiding are variables that have the SDK use something else than the pod's ServiceAccount, doubtful those that have some
	// SDKs do so.
	hiding, doubtful []string
	// audienceKey is the annotation that replaces the audience, skipKey that of pods whose containers the webhook leaves out.
	audienceKey, skipKey string
	// What is wrong, as error classes.
	malformed, noKey, noAudience, old, wrongAudience, wrongSubject, wrongCase, wrongIssuer string
	private, unpublished, badSignature, badIdentifier, unset                               string
	// maxSubject is the longest subject, in bytes. 0: any.
	maxSubject int
	// readsIssuer says that the cloud gets the keys from the issuer.
	readsIssuer bool
}

const (
	tenantAnnotation       = annotation.AzureTenantID
	poolProviderAnnotation = annotation.GCPWorkloadIdentityProvider
	emailAnnotation        = annotation.GCPServiceAccount
)

func cloudOf(provider string) cloud {
	switch provider {
	case "aws":
		return cloud{name: "AWS", audience: "sts.amazonaws.com", audiences: []string{"sts.amazonaws.com", "sts.amazonaws.com.cn"},
			annotations: []string{annotation.AWSRoleARN, annotation.AWSAudience, annotation.AWSTokenExpiration,
				"eks.amazonaws.com/sts-regional-endpoints"},
			required: annotation.AWSRoleARN, tokenFile: "AWS_WEB_IDENTITY_TOKEN_FILE", identity: "AWS_ROLE_ARN",
			hiding: []string{"AWS_ACCESS_KEY_ID"}, doubtful: []string{"AWS_PROFILE", "AWS_DEFAULT_PROFILE"},
			audienceKey: annotation.AWSAudience, skipKey: "eks.amazonaws.com/skip-containers",
			malformed: "A6", noKey: "A3", noAudience: "A5", old: "A9", wrongAudience: "A4", wrongSubject: "A1", wrongCase: "A1",
			wrongIssuer: "A2", private: "A3", unpublished: "A3", badSignature: "A8", badIdentifier: "A10", unset: "A14", readsIssuer: true}
	case "azure":
		return cloud{name: "Azure", audience: "api://AzureADTokenExchange",
			audiences: []string{"api://AzureADTokenExchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina"},
			annotations: []string{annotation.AzureClientID, tenantAnnotation,
				annotation.AzureTokenExpiration},
			labels: []string{"azure.workload.identity/use"}, required: annotation.AzureClientID,
			tokenFile: "AZURE_FEDERATED_TOKEN_FILE", identity: "AZURE_CLIENT_ID", tenant: "AZURE_TENANT_ID",
			hiding:    []string{"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH"},
			skipKey:   "azure.workload.identity/skip-containers",
			malformed: "A6", noKey: "Z11", noAudience: "Z3", old: "Z10", wrongAudience: "Z3", wrongSubject: "Z4", wrongCase: "Z5",
			wrongIssuer: "Z2", private: "Z12", unpublished: "Z11", badSignature: "Z11", badIdentifier: "Z7", unset: "Z16", readsIssuer: true}
	case "gcp":
		return cloud{name: "Google Cloud", audience: "//iam.googleapis.com/<provider>",
			annotations: []string{emailAnnotation, poolProviderAnnotation},
			malformed:   "A6", noKey: "G5", noAudience: "G3", old: "G7", wrongAudience: "G3", wrongSubject: "G10", wrongCase: "G10",
			wrongIssuer: "G4", private: "G5", unpublished: "G5", badSignature: "G6", badIdentifier: "G2", unset: "G15",
			maxSubject: 127, readsIssuer: true}
	}
	return cloud{name: provider, malformed: "A6", noKey: "K6", noAudience: "K5", old: "K6", wrongAudience: "K5", wrongSubject: "K6",
		wrongCase: "K6", wrongIssuer: "K8", private: "K7", unpublished: "K6", badSignature: "K6", badIdentifier: "K8", unset: "K5"}
}

// miss is a key that somebody has meant to be one of ours: misspelt, or a label where an annotation counts.
type miss struct{ wrote, meant, key, value string }

// nearMiss finds one, whose wrote is empty if there is none. key is the annotation that it should be.
func (c *cloud) nearMiss(annotations, labels map[string]string) miss {
	known := slices.Concat(c.annotations, c.labels)
	for _, key := range sortedKeys(annotations) {
		if slices.Contains(known, key) {
			continue
		}
		for _, want := range c.annotations {
			if alike(key, want) && annotations[want] == "" {
				return miss{key, want, want, annotations[key]}
			}
		}
	}
	for _, key := range sortedKeys(labels) {
		for _, want := range c.annotations {
			if alike(key, want) && annotations[want] == "" {
				return miss{key + " (a label)", want + " (an annotation)", want, labels[key]}
			}
		}
	}
	return miss{}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// alike reports whether two keys differ in case, separators or up to three characters.
func alike(a, b string) bool {
	plain := strings.NewReplacer("-", "", "_", "", ".", "", "/", "")
	a, b = plain.Replace(strings.ToLower(a)), plain.Replace(strings.ToLower(b))
	const most = 3
	return a == b || max(len(a), len(b))-min(len(a), len(b)) <= most && distance(a, b) <= most
}

// distance is the Levenshtein distance, of texts as short as the keys of annotations are.
func distance(a, b string) int {
	const longest = 128
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost = min(corner, row[j], row[j+1]) + 1
			}
			corner, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
