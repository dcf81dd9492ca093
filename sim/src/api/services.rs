//! What a new Service is given: its address in the cluster, and ports on the nodes.
//!
//! Here belongs what the server fills in; endpoints are made by a model. The invariant: no address and no node port is
//! given twice.

use serde_json::{Value, json};

use super::state::ApiState;
impl ApiState {
    /// Fills in the address and the node ports that the Service does not name.
    pub(super) fn admit_service(&mut self, service: &mut Value) {
        let kind = service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
        if kind == "ExternalName" {
            return;
        }
        if service["spec"]["clusterIP"].as_str().is_none_or(str::is_empty) {
            service["spec"]["clusterIP"] = self.unused("clusterIP", |state| {
                let host = state.random.between(10, 65_000);
                format!("10.96.{}.{}", host / 250, host % 250 + 1).into()
            });
        }
        let spec = &mut service["spec"];
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
        // A headless Service without a selector may have endpoints of both families.
        let open =
            spec["clusterIP"] == "None" && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
        spec["ipFamilies"] = if open { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        spec["ipFamilyPolicy"] = if open { "RequireDualStack" } else { "SingleStack" }.into();
        if !matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            return;
        }
        let mut ports = spec["ports"].take();
        for port in ports.as_array_mut().into_iter().flatten() {
            if port["nodePort"].as_u64().unwrap_or(0) == 0 {
                port["nodePort"] =
                    self.unused("nodePort", |state| state.random.between(30_000, 32_767).into());
            }
        }
        service["spec"]["ports"] = ports;
    }

    /// A value of that field that no service has.
    fn unused(&mut self, field: &str, draw: impl Fn(&mut Self) -> Value) -> Value {
        loop {
            let drawn = draw(self);
            let text = format!("\"{field}\":{drawn}");
            let mut services = self.store.shelf("services").into_iter().flat_map(|shelf| shelf.live.values());
            if !services.any(|service| service.text().contains(&text)) {
                return drawn;
            }
        }
    }
}
