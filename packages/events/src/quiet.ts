/** A hook that reports an error must not cause another one, neither at once nor later. */
export function quiet<Report>(hook: (report: Report) => unknown): (report: Report) => void {
  return (report) => {
    // There is nobody left to tell.
    void new Promise((resolve) => resolve(hook(report))).catch(() => undefined);
  };
}
