package webhook

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
)

// head holds the fields of a pod that decide whether it is injected.
type head struct {
	Metadata struct {
		Annotations struct {
			Mirror *string `json:"kubernetes.io/config.mirror"`
			Inject string  `json:"iam.aws.k8s.io/inject"`
		} `json:"annotations"`
		OwnerReferences []struct{} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		ServiceAccountName string `json:"serviceAccountName"`
	} `json:"spec"`
}

// pod holds only the fields that the injection reads. The decoder skips the
// others without an allocation.
type pod struct {
	Metadata struct {
		Annotations struct {
			SkipContainers string `json:"iam.aws.k8s.io/skip-containers"`
			Redirect       string `json:"iam.aws.k8s.io/redirect"`
		} `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool `json:"hostNetwork"`
		OS          struct {
			Name corev1.OSName `json:"name"`
		} `json:"os"`
		NodeSelector struct {
			OS    corev1.OSName `json:"kubernetes.io/os"`
			OldOS corev1.OSName `json:"beta.kubernetes.io/os"` // nodes still have this label
		} `json:"nodeSelector"`
		Affinity struct {
			NodeAffinity struct {
				Required struct {
					Terms list[nodeTerm] `json:"nodeSelectorTerms"`
				} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
			} `json:"nodeAffinity"`
		} `json:"affinity"`
		Resources      resources       `json:"resources"`
		Containers     list[container] `json:"containers"`
		InitContainers list[container] `json:"initContainers"`
		Volumes        list[volume]    `json:"volumes"`
	} `json:"spec"`
}

type container struct {
	Name          string                         `json:"name"`
	Command       list[string]                   `json:"command"`
	Args          list[string]                   `json:"args"`
	Env           list[variable]                 `json:"env"`
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	StartupProbe  *struct{}                      `json:"startupProbe"`
	Resources     resources                      `json:"resources"`
}

// resources holds the two resources that decide the QoS class.
type resources struct {
	Requests cpuMemory `json:"requests"`
	Limits   cpuMemory `json:"limits"`
}

type cpuMemory struct {
	CPU    quantity `json:"cpu"`
	Memory quantity `json:"memory"`
}

// quantity is nil if the pod sets none. It is zero if it cannot be read, and
// the API server refuses that pod.
type quantity struct{ *resource.Quantity }

// UnmarshalJSON implements json.Unmarshaler.
func (q *quantity) UnmarshalJSON(raw []byte) error {
	if string(raw) != "null" {
		q.Quantity = &resource.Quantity{}
		_ = q.Quantity.UnmarshalJSON(raw)
	}
	return nil
}

// nodeTerm is one alternative of a required node affinity.
type nodeTerm struct {
	Expressions list[struct {
		Key      string                      `json:"key"`
		Operator corev1.NodeSelectorOperator `json:"operator"`
		Values   list[string]                `json:"values"`
	}] `json:"matchExpressions"`
}

type variable struct {
	Name      string    `json:"name"`
	Value     string    `json:"value,omitempty"`
	ValueFrom *struct{} `json:"valueFrom,omitempty"`
}

type volume struct {
	Name      string `json:"name"`
	Projected struct {
		Sources list[struct {
			ServiceAccountToken *corev1.ServiceAccountTokenProjection `json:"serviceAccountToken"`
		}] `json:"sources"`
	} `json:"projected"`
}

// list is an array that is counted before it is decoded, because its elements
// may take far more memory than their text.
type list[T any] []T

var errLongList = errors.New("an array of the pod has more than 500 elements: remove some")

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(raw []byte) error {
	var size []element
	if err := json.Unmarshal(raw, &size); err != nil {
		return err
	}
	if len(size) > maxElements {
		return errLongList
	}
	*l = make([]T, 0, len(size))
	return json.Unmarshal(raw, (*[]T)(l))
}

// element takes no memory, whatever its text is.
type element struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*element) UnmarshalJSON([]byte) error { return nil }
