package manifests

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/registration/ocm"
)

// programManifest holds the Deployment of a program and the policies of its
// pods. It meets the Restricted Pod Security Standard.
//
//go:embed program.yaml
var programManifest string

// program describes a Deployment. Hub and agent elect a leader, so a second
// replica only shortens an outage. With a TLSSecret it serves at port 8443.
type program struct {
	Namespace, Name, Account, Image, CPU, Egress string
	TLSSecret                                    string
	Args                                         []string
	Annotations                                  map[string]string // of the Deployment
	MemoryRequest, MemoryLimit                   int               // in MiB
	replicas                                     *int32
	pullSecrets                                  []string
}

func (program) Container() string { return ocm.Container }

// GoMemoryLimit leaves 10 % of the limit for memory that the Go runtime does
// not count.
func (p program) GoMemoryLimit() string { return fmt.Sprintf("%dMiB", p.MemoryLimit*9/10) }

// Replicas returns the number of replicas, 2 by default.
func (p program) Replicas() int32 {
	if p.replicas == nil {
		return 2
	}
	return *p.replicas
}

// PullSecrets returns the pull secrets as references.
func (p program) PullSecrets() (references []corev1.LocalObjectReference) {
	for _, name := range p.pullSecrets {
		references = append(references, corev1.LocalObjectReference{Name: name})
	}
	return references
}

// manifest returns the YAML documents, the Deployment last. Values in JSON need
// no other quotes in YAML.
func (p program) manifest() (string, error) {
	toJSON := func(v any) (string, error) {
		content, err := json.Marshal(v)
		return string(content), err
	}
	parsed, err := template.New("program").Funcs(template.FuncMap{"json": toJSON}).Parse(programManifest)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, p)
	return out.String(), err
}

// withRole annotates the ServiceAccount of manifests with its role in IAM, and
// gives it the name that the role trusts.
func withRole(manifests, account, trusted, roleARN string) string {
	const head = "kind: ServiceAccount\nmetadata:\n"
	annotations := "  annotations: {" + annotation.AWSRoleARN + ": \"" + roleARN + "\"}\n"
	return strings.NewReplacer(
		head+"  name: "+account+"\n", head+annotations+"  name: "+trusted+"\n",
		"{kind: ServiceAccount, name: "+account+",", "{kind: ServiceAccount, name: "+trusted+",").Replace(manifests)
}

// checkAuthTypes refuses unknown auth types, because they have no manifests.
func checkAuthTypes(of string, given []string, known ...string) error {
	for _, authType := range given {
		if !slices.Contains(known, authType) {
			return fmt.Errorf("unknown auth type %q of %s: use one of %s", authType, of, strings.Join(known, ", "))
		}
	}
	return nil
}

const separator = "\n---\n"

// join concatenates documents.
func join(manifests []string) string {
	trimmed := make([]string, len(manifests))
	for i, m := range manifests {
		trimmed[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(m), "---"))
	}
	return strings.Join(trimmed, separator) + "\n"
}

// Parse returns the objects in manifests. It refuses YAML with a key that
// occurs twice.
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
