"""The series of each program, and gauges that are reported together."""

import aiohttp
from prometheus_client import CollectorRegistry, generate_latest

import controller.metrics
import extender.metrics
import webhook.metrics
from runtime import metrics
from runtime.metrics import MetricCollector, ReportedGauge, Samples
from serving import http
from tests.support.clock import FakeClock


def families(of: metrics.Metrics) -> set[str]:
    return {found.name for found in of.registry.collect() if found.name.startswith("ebb_")}


def test_program_exposes_its_own_series_and_needed_shared_ones() -> None:
    every = families(metrics.Metrics())
    assert every == {"ebb_build_info"}
    api, watches, tls, events, scores, reviews, engine = (
        families(made()) - every
        for made in (
            metrics.ApiMetrics,
            metrics.WatchMetrics,
            metrics.TlsMetrics,
            metrics.EventMetrics,
            extender.metrics.Metrics,
            webhook.metrics.Metrics,
            controller.metrics.Metrics,
        )
    )
    assert (scores & engine, scores & reviews) == (watches, tls | api)
    assert reviews & engine == events | api
    assert api == {"ebb_api_requests"}
    assert watches - api == {
        "ebb_watch_age_seconds",
        "ebb_watch_restarts",
        "ebb_decode_errors",
        "ebb_unreadable_objects",
    }
    assert tls == {
        "ebb_tls_handshake_failures",
        "ebb_serving_certificate_expiration_timestamp_seconds",
    }
    assert events == {"ebb_event_write_failures"}
    assert {name.split("_")[1] for name in scores - watches - tls} == {"extender"}
    assert {name.split("_")[1] for name in reviews - tls - events - api} == {"webhook"}
    assert not any(name.startswith(("ebb_extender", "ebb_webhook")) for name in engine)
    assert "ebb_config_last_reload_successful" in engine


class Scraped(Samples):
    """Samples that are scraped while they are read."""

    def __init__(self, samples: Samples, registry: CollectorRegistry) -> None:
        super().__init__(samples)
        self._registry = registry
        self.seen: list[bytes] = []

    def items(self):  # type: ignore[no-untyped-def] # noqa: ANN201 as dict has it
        self.seen.append(generate_latest(self._registry))
        return super().items()


def test_scrape_during_report_sees_all_previous_samples() -> None:
    registry = CollectorRegistry()
    collector: MetricCollector[list[Samples]] = MetricCollector(
        ReportedGauge("ebb_a", "A.", ("of",), lambda seen: seen[0]),
        ReportedGauge("ebb_b", "B.", ("of",), lambda seen: seen[1]),
        ReportedGauge("ebb_c", "C.", (), lambda seen: seen[2]),
    )
    registry.register(collector)
    assert b"\nebb_c 0.0\n" in generate_latest(registry), "a gauge without labels exists at once"
    collector.report([{("x",): 1}, {("x",): 2}, {(): 3}])
    before = generate_latest(registry)
    between = [Scraped({("y",): 4}, registry), Scraped({("y",): 5}, registry)]
    collector.report([*between, {}])
    assert [one.seen for one in between] == [[before], [before]]
    after = generate_latest(registry)
    assert b'ebb_a{of="y"} 4.0' in after
    assert b'ebb_b{of="y"} 5.0' in after
    assert b'of="x"' not in after
    assert b"ebb_c 3.0" not in after


async def test_metrics_text_is_cached_between_scrapes() -> None:
    """The event loop that answers calls makes it; endless scrapes kept the loop busy."""
    clock, series = FakeClock(), metrics.WatchMetrics()
    server = http.Server(http.base_app(http.Health(), clock, series), "127.0.0.1:0")
    await server.start()
    lost = series.watch_restarts.labels("nodes", "error")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

        async def scraped() -> str:
            async with session.get("/metrics") as response:
                return await response.text()

        first = await scraped()
        lost.inc()
        assert await scraped() == first
        clock.seconds += http.SCRAPE_SECONDS
        assert 'ebb_watch_restarts_total{reason="error",resource="nodes"} 1.0' in await scraped()
    await server.stop()
