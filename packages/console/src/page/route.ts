import { computed, signal } from '@preact/signals';

import { type Address, parseAddress, to } from './address.js';

const hash = signal(location.hash);
addEventListener('hashchange', () => (hash.value = location.hash));

/** The screen and its filters, from the address: a link to it can be sent to somebody. */
export const route = computed((): Address => parseAddress(hash.value));

/** Goes to a screen; back leads to the present one. */
export function go(address: string): void {
  location.hash = address;
}

/** Replaces filters of the present screen; the next page of something belongs to the filters before, so it is left out. */
export function refine(changes: Readonly<Record<string, string | undefined>>): void {
  const { path, query } = route.value;
  go(to(path, { ...query, after: undefined, ...changes }));
}
