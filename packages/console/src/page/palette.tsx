import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import { to } from './address.js';
import { go } from './route.js';
import type { ScreenLink } from './screens.js';

/** Whether the palette is shown. */
export const isPaletteOpen = signal(false);

addEventListener('keydown', (event) => {
  if (event.key.toLowerCase() !== 'k' || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  isPaletteOpen.value = !isPaletteOpen.value;
});

/** Goes to a screen, or looks up any id, without the mouse. */
export function Palette({ screens }: { screens: readonly ScreenLink[] }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  useEffect(() => dialog.current?.showModal(), []);
  const wanted = text.trim();
  const found = screens.filter(({ title }) => title.toLowerCase().includes(wanted.toLowerCase()));
  const lookUps =
    wanted === ''
      ? []
      : [
          { title: `Why ${wanted}`, href: to(['why', wanted]) },
          { title: `History of model ${wanted}`, href: to(['models', wanted]) },
          { title: `Idempotency key ${wanted}`, href: to(['keys'], { key: wanted }) },
        ];
  const entries = [...found, ...lookUps];
  const open = (index: number): void => {
    const entry = entries[index];
    if (entry === undefined) return;
    go(entry.href);
    dialog.current?.close();
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setChosen((chosen + step + entries.length) % Math.max(1, entries.length));
    } else if (event.key === 'Enter') {
      event.preventDefault();
      open(chosen);
    }
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Go to" onClose={() => (isPaletteOpen.value = false)}>
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-entries"
        aria-activedescendant={entries.length === 0 ? undefined : `palette-${chosen}`}
        aria-label="A screen, or any id"
        placeholder="A screen, or any id"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={press}
      />
      <ul id="palette-entries" role="listbox" aria-label="Found">
        {entries.map(({ title }, index) => (
          <li
            key={title}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === chosen}
            onClick={() => open(index)}
            onPointerMove={() => setChosen(index)}
          >
            {title}
          </li>
        ))}
      </ul>
    </dialog>
  );
}
