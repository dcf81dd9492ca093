// Command schema prints the shape of the built-in kinds that the virtual cluster serves, one type after the other,
// in the form that src/schema/builtin.rs reads. What a field is called and whether its zero value is written comes
// from the Go types; how its lists merge comes from the published OpenAPI document, whose path is the argument.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	autoscaling2 "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	policy "k8s.io/api/policy/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var roots = []any{
	core.Pod{}, core.Node{}, core.Namespace{}, core.ConfigMap{}, core.Secret{}, core.Service{}, core.ServiceAccount{}, core.Event{},
	core.PersistentVolume{}, core.PersistentVolumeClaim{}, core.PodTemplate{}, core.ReplicationController{}, core.ResourceQuota{}, core.Binding{}, apps.Deployment{}, apps.ReplicaSet{},
	apps.StatefulSet{}, apps.DaemonSet{}, apps.ControllerRevision{}, batch.Job{}, policy.PodDisruptionBudget{},
	policy.Eviction{}, coordination.Lease{}, discovery.EndpointSlice{}, events.Event{}, scheduling.PriorityClass{},
	storage.StorageClass{}, storage.VolumeAttachment{}, admission.ValidatingWebhookConfiguration{},
	admission.MutatingWebhookConfiguration{}, autoscaling.Scale{}, autoscaling2.HorizontalPodAutoscaler{}, extensions.CustomResourceDefinition{},
	meta.DeleteOptions{},
}

type extras map[string]any

var document struct {
	Definitions map[string]struct {
		Properties map[string]extras `json:"properties"`
		MapType    string            `json:"x-kubernetes-map-type"`
	} `json:"definitions"`
}

var order []reflect.Type
var seen = map[reflect.Type]bool{}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	for _, root := range roots {
		visit(reflect.TypeOf(root))
	}
	for i := 0; i < len(order); i++ {
		t := order[i]
		fmt.Println(name(t))
		fields(t, definition(t), "")
	}
}

func definition(t reflect.Type) string {
	path := strings.ReplaceAll(t.PkgPath(), "/", ".")
	path = strings.Replace(path, "k8s.io.", "io.k8s.", 1)
	path = strings.Replace(path, "apiextensions-apiserver", "apiextensions-apiserver", 1)
	return path + "." + t.Name()
}

// name is short and unique: core.Pod, meta.ObjectMeta.
func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return parts[len(parts)-2] + "." + t.Name()
}

func visit(t reflect.Type) {
	if seen[t] {
		return
	}
	seen[t] = true
	order = append(order, t)
}

// outside are the fields of what is inlined without a number: kind and apiVersion, which the binary form keeps elsewhere.
const outside = "-"

// number is the field's in the binary form; what is inlined in JSON is a message of its own there.
func number(f reflect.StructField, within string) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 || within == outside {
		return ""
	}
	return within + parts[1]
}

func fields(t reflect.Type, def, within string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if f.Anonymous && (tag[0] == "" || tag[0] == "-") {
			inside := outside
			if n := number(f, within); n != "" {
				inside = n + "."
			}
			fields(f.Type, def, inside)
			continue
		}
		if tag[0] == "" || tag[0] == "-" {
			continue
		}
		line := " " + tag[0] + " "
		extra := document.Definitions[def].Properties[tag[0]]
		line += shape(f.Type)
		omit, zero := false, false
		for _, option := range tag[1:] {
			omit = omit || option == "omitempty"
			zero = zero || option == "omitzero"
		}
		pointer := f.Type.Kind() == reflect.Pointer
		structural := f.Type.Kind() == reflect.Struct
		switch {
		case pointer && omit:
		case structural && zero, !structural && omit:
			line += " omit"
		default:
			line += " always"
		}
		if v, ok := extra["x-kubernetes-list-type"].(string); ok {
			line += " list=" + v
			if keys, ok := extra["x-kubernetes-list-map-keys"].([]any); ok {
				for j, key := range keys {
					line += map[bool]string{true: ":", false: ","}[j == 0] + key.(string)
				}
			}
		}
		if v, ok := extra["x-kubernetes-map-type"].(string); ok && v == "atomic" {
			line += " atomic"
		}
		if v := f.Tag.Get("patchMergeKey"); v != "" {
			line += " key=" + v
		}
		if v := f.Tag.Get("patchStrategy"); v != "" {
			line += " patch=" + v
		}
		if n := number(f, within); n != "" {
			line += " pb=" + n
		}
		fmt.Println(line)
	}
}

func shape(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch definition(t) {
	case "io.k8s.apimachinery.pkg.apis.meta.v1.Time":
		return "time"
	case "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":
		return "microtime"
	case "io.k8s.apimachinery.pkg.api.resource.Quantity":
		return "quantity"
	case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
		return "intstr"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64, reflect.Int:
		return "int64"
	case reflect.Float64, reflect.Float32:
		return "number"
	case reflect.Map:
		return "{" + shape(t.Elem()) + "}"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + shape(t.Elem()) + "]"
	case reflect.Struct:
		switch t.Name() {
		case "FieldsV1", "RawExtension", "JSON", "JSONSchemaProps", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray",
			"JSONSchemaPropsOrStringArray":
			return "any"
		}
		visit(t)
		shaped := name(t)
		if document.Definitions[definition(t)].MapType == "atomic" {
			shaped += "!"
		}
		return shaped
	}
	return "any"
}
