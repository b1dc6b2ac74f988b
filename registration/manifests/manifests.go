package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/aws"
)

// Container is the name of the container in the Deployments of Hub and Agent.
const Container = "registration"

// deployment meets the Restricted Pod Security Standard. The programs answer probes at this port.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      serviceAccountName: %[3]s
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: ` + Container + `
        image: %[4]s
        args: %[5]s
        readinessProbe: {httpGet: {path: /readyz, port: 8081}}
        livenessProbe: {httpGet: {path: /healthz, port: 8081}, initialDelaySeconds: 10}
        resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 512Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// deploymentOf returns the Deployment of a program that runs as a ServiceAccount. JSON in YAML needs no other quotes.
func deploymentOf(namespace, name, account, image string, args []string) (string, error) {
	quoted, err := json.Marshal(image)
	list, listErr := json.Marshal(args)
	return fmt.Sprintf(deployment, namespace, name, account, quoted, list), errors.Join(err, listErr)
}

// withRole annotates the ServiceAccount of manifests with its role in IAM, and gives it the name that the role trusts.
func withRole(manifests, account, trusted, roleARN string) string {
	const head = "kind: ServiceAccount\nmetadata:\n"
	annotations := "  annotations: {" + aws.RoleARNAnnotation + ": \"" + roleARN + "\"}\n"
	return strings.NewReplacer(
		head+"  name: "+account+"\n", head+annotations+"  name: "+trusted+"\n",
		"{kind: ServiceAccount, name: "+account+",", "{kind: ServiceAccount, name: "+trusted+",").Replace(manifests)
}

// checkAuthTypes refuses unknown auth types, for which there are no manifests.
func checkAuthTypes(of string, given []string, known ...string) error {
	for _, authType := range given {
		if !slices.Contains(known, authType) {
			return fmt.Errorf("unknown auth type %q of %s: use one of %s", authType, of, strings.Join(known, ", "))
		}
	}
	return nil
}

const separator = "\n---\n"

// join makes one file of several.
func join(manifests []string) string {
	trimmed := make([]string, len(manifests))
	for i, m := range manifests {
		trimmed[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(m), "---"))
	}
	return strings.Join(trimmed, separator) + "\n"
}

// Parse returns the objects in manifests. It refuses YAML with a key that occurs twice.
func Parse(manifests ...string) (objects []*unstructured.Unstructured, err error) {
	for document := range strings.SplitSeq(join(manifests), separator) {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}
