import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import UPlot from 'uplot';

const heightPx = 120;
/** A time axis covers at least so many seconds. */
const shownMinS = 120;
/** Versions are whole numbers. */
const versionSteps = [1, 2, 5]
  .flatMap((step) => [1, 10, 100, 1_000, 10_000].map((power) => step * power))
  .sort((a, b) => a - b);

/** A line over time or over versions. The numbers are rounded for drawing: exact ones are in the tables. */
export function Chart(props: {
  label: string;
  x: readonly number[];
  y: readonly number[];
  isTime: boolean;
  /** How values of the axis are written. */
  write?: (value: number) => string;
}): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>(undefined);
  const { x, y, isTime, label } = props;
  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const draw = (): void => {
      plot.current?.destroy();
      plot.current = new UPlot(optionsFor(element, props), [[...x], [...y]], element);
    };
    draw();
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', draw);
    const resized = new ResizeObserver(() =>
      plot.current?.setSize({ width: Math.max(200, element.clientWidth), height: heightPx }),
    );
    resized.observe(element);
    return () => {
      dark.removeEventListener('change', draw);
      resized.disconnect();
      plot.current?.destroy();
    };
  }, [isTime, label]);
  useEffect(() => plot.current?.setData([[...x], [...y]]), [x, y]);
  return <div class="chart" ref={frame} role="img" aria-label={label} />;
}

function optionsFor(
  element: HTMLElement,
  { isTime, write }: { readonly isTime: boolean; readonly write?: (value: number) => string },
): UPlot.Options {
  const colour = (name: string): string => getComputedStyle(element).getPropertyValue(name).trim();
  const axis: UPlot.Axis = {
    stroke: colour('--muted'),
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
  };
  return {
    width: Math.max(200, element.clientWidth),
    height: heightPx,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 28, 0, 0],
    scales: {
      x: {
        time: isTime,
        range: (_plot, first, last) => {
          if (isTime) return [Math.min(first, last - shownMinS), last];
          return first === last ? [first - 1, last + 1] : [first, last];
        },
      },
      y: { range: (_plot, low, high) => [Math.min(0, low), Math.max(1, high * 1.1)] },
    },
    axes: [
      {
        ...axis,
        size: 24,
        space: 70,
        ...(isTime ? { values: (_plot, ticks) => ticks.map(clock) } : { incrs: versionSteps }),
      },
      { ...axis, size: 56, space: 28, ...(write && { values: (_plot, ticks) => ticks.map(write) }) },
    ],
    series: [
      {},
      { stroke: colour('--accent'), width: 1.5, fill: colour('--accent-soft'), points: { show: false } },
    ],
  };
}

function clock(seconds: number): string {
  return new Date(seconds * 1_000).toTimeString().slice(0, 8);
}
