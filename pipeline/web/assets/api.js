// Requests to the dashboard, about the pipeline that is chosen.

let chosen = "";
export const choose = (name) => { chosen = name; };

const address = (path, query = {}) => `${path}?${new URLSearchParams({ pipeline: chosen, ...query })}`;
export const liveAddress = (query) => address("/api/live", query);

async function answer(response) {
  if (response.status === 401) {
    location.assign(`/sign-in?to=${encodeURIComponent(location.pathname)}`);
    throw new Error("sign in first");
  }
  if (response.ok) return response.json();
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error ?? `the dashboard answered ${response.status}`);
}

export const get = async (path, query, signal) => answer(await fetch(address(path, query), { signal }));
export const post = async (path, body = {}) => answer(await fetch(address(path), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
