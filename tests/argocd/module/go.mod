module evenkeel.dev/argocd

go 1.26.0

// The version that Argo CD v3.6 is built with.
require github.com/yuin/gopher-lua v1.1.2
